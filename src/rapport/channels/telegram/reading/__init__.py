"""Read updates: from Telegram's JSON to events."""
