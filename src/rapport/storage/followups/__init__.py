"""Follow-ups: timers, their turns and preferences."""
