"""The HTTP channel: REST, live updates, OpenAI's API and the page."""
