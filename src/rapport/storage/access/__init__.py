"""Store API keys and browser sessions."""
