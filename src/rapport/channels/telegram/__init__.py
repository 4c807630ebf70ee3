"""Telegram: its updates come in as what people said, and what the agent says goes out as its messages."""
