"""Work to do: events, the workers that process them, and the outbox."""
