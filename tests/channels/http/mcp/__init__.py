"""Test Rapport as an MCP server, with clients that others wrote."""
