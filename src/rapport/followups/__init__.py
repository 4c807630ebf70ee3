"""What the agent does unasked: when to follow up, whether it may, and that nothing of it shows (AUTO)."""
