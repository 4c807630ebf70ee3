"""Connect Telegram: read its updates as messages, and send replies and notices as its messages."""
