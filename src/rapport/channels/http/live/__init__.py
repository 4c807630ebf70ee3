"""Send live updates: server-sent events and WebSockets."""
