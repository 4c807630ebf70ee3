"""Test the real command in separate processes, with a real Postgres and a real HTTP model."""
