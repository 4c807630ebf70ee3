"""Read requests within limits."""
