"""Test the tools of MCP servers: with servers that others wrote, and with hostile ones."""
