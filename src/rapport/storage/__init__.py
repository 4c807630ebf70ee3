"""Postgres: the only place where SQL is written."""
