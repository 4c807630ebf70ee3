"""Send outbox rows through their channels."""
