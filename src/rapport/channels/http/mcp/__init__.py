"""Rapport as an MCP server: tools and resources for other programs, at `/mcp` and over standard input."""
