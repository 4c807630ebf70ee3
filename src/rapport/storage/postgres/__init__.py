"""Start and stop the embedded Postgres."""
