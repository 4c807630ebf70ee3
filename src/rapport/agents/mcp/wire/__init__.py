"""Speak MCP with a server. Only these modules import the official package, which is an extra and takes a while to import."""
