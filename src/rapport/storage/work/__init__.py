"""Store pending work: events, the workers that process them, and the outbox."""
