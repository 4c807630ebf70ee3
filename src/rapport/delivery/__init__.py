"""What goes out: outbox rows, sent through a channel."""
