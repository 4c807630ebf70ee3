"""Send what happens while it happens: server-sent events and WebSockets."""
