"""The real command, as its own processes, against a real Postgres and a real HTTP model."""
