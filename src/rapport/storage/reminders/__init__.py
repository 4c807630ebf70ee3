"""Store reminders."""
