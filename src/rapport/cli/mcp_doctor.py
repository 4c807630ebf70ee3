"""Report on MCP servers for `rapport doctor`: their configuration, and whether each can be used."""

from __future__ import annotations

from functools import partial

from rapport.agents.mcp.config import DEFAULT_FILE_NAME, McpServer
from rapport.agents.mcp.source import McpTools
from rapport.app import read_mcp_servers
from rapport.cli.doctor import Caution, Part
from rapport.cli.mcp_servers import add_remedy, connect
from rapport.domain.errors import RapportError
from rapport.domain.extras import MCP, require_extra
from rapport.settings import Settings


async def check_mcp_servers(part: Part, settings: Settings) -> None:
    """Print a line about the configuration, and one about each server that it names."""
    servers: list[McpServer] = []

    async def read_configuration() -> str:
        configured = read_mcp_servers(settings)
        if not configured:
            return (
                f"none: {settings.mcp_config or settings.data_dir / DEFAULT_FILE_NAME} names no server (docs/tools.md)"
            )
        require_extra(MCP, "MCP servers are configured")
        servers.extend(configured)
        return f"{len(servers)} configured: `rapport tools list`"

    await part("MCP servers", read_configuration)
    if servers:
        async with connect(servers) as tools:
            for server in servers:
                seconds = tools.connections[server.name].connect_seconds
                await part(f"MCP server {server.name}", partial(_report_server, tools, server), seconds=seconds)


async def _report_server(tools: McpTools, server: McpServer) -> str:
    if (problem := tools.find_problem(server.name)) is not None:
        raise RapportError(add_remedy(server, problem))
    specs = [spec for spec in tools.list_tools() if spec.server == server.name]
    if not specs:
        return Caution("it is connected and offers no tools")
    if unknown := tools.connections[server.name].unknown_names:
        names = ", ".join(unknown)
        return Caution(f"{len(specs)} tools; `readOnly` or `disabledTools` name some that it does not have: {names}")
    changing = sum(spec.has_outside_effect for spec in specs)
    return f"{len(specs)} tools over {server.transport}, {changing} of them change something"
