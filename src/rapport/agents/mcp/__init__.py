"""Use the tools of MCP servers: read their configuration, stay connected with them, list and call their tools (ADR 92)."""
