"""Test how the configuration of MCP servers is read: what people have in such files, and mistakes in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rapport.agents.mcp.config import McpServer, read_servers
from rapport.domain.errors import Permanent

ENVIRONMENT = {"PATH": "/bin", "GITHUB_TOKEN": "ghp-1234567890", "OPENAI_API_KEY": "of-this-server"}


def read(tmp_path: Path, servers: object, **more: Any) -> list[McpServer]:
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": servers, **more}))
    return read_servers(path, tmp_path, ENVIRONMENT)


def test_a_program_and_an_address_are_read(tmp_path: Path) -> None:
    files, remote = read(
        tmp_path,
        {
            "files": {
                "type": "stdio",
                "command": "npx",
                "args": ["-y", "server", "/data"],
                "cwd": "work",
                "env": {"A": "b"},
            },
            "remote-1": {
                "transport": "streamable-http",
                "url": "https://example.org/mcp",
                "headers": {"Authorization": "Bearer ${GITHUB_TOKEN}"},
                "timeout_seconds": 90,
                "readOnly": ["find"],
                "disabledTools": ["drop"],
            },
        },
    )
    assert (files.command, files.args, files.cwd) == ("npx", ["-y", "server", "/data"], tmp_path / "work")
    assert files.env == {"PATH": "/bin", "A": "b"}
    assert (files.timeout_seconds, files.read_only, files.transport) == (30.0, None, "stdio")
    assert (remote.url, remote.transport) == ("https://example.org/mcp", "http")
    assert remote.headers == {"Authorization": "Bearer ghp-1234567890"}
    assert (remote.timeout_seconds, remote.read_only, remote.disabled_tools) == (90, {"find"}, {"drop"})


def test_a_missing_default_file_means_no_servers(tmp_path: Path) -> None:
    assert read_servers(None, tmp_path, ENVIRONMENT) == []
    with pytest.raises(Permanent, match=r"RAPPORT_MCP_CONFIG: there is no file .*none\.json"):
        read_servers(tmp_path / "none.json", tmp_path, ENVIRONMENT)


def test_a_disabled_server_is_left_out_with_its_variables(tmp_path: Path) -> None:
    assert read(tmp_path, {"a": {"command": "x", "disabled": True, "env": {"A": "${NOT_THERE}"}}}) == []


def test_variables_have_defaults_and_the_form_of_other_programs(tmp_path: Path) -> None:
    env = {"A": "${NOT_THERE:-default}", "B": "${env:GITHUB_TOKEN}!", "C": "$HOME ${1} ${}"}
    [server] = read(tmp_path, {"a": {"command": "x", "args": ["--key=${GITHUB_TOKEN}"], "env": env}})
    assert server.env == {"PATH": "/bin", "A": "default", "B": "ghp-1234567890!", "C": "$HOME ${1} ${}"}
    assert server.args == ["--key=ghp-1234567890"]


def test_secrets_are_known_and_not_shown(tmp_path: Path) -> None:
    [server, remote] = read(
        tmp_path,
        {
            "a": {
                "command": "x",
                "args": ["${GITHUB_TOKEN}"],
                "env": {"PASSWORD": "hunter2hunter2", "DIR": "/data/files"},
            },
            "b": {
                "url": "https://me:pass-word-1@example.org/mcp?key=query-secret",
                "headers": {"X-Key": "Token abcdefghij"},
            },
        },
    )
    text = "ghp-1234567890 hunter2hunter2 /data/files"
    assert server.redact(text) == "[redacted] [redacted] /data/files"
    assert remote.redact("pass-word-1 query-secret abcdefghij") == "[redacted] [redacted] [redacted]"
    for secret in ("ghp-", "hunter2", "pass-word", "query-secret", "abcdefghij"):
        assert secret not in repr([server, remote])


@pytest.mark.parametrize(
    ("servers", "problem"),
    [
        ([], "`mcpServers` must be an object with a field for each server"),
        ({"a b": {"command": "x"}}, "`mcpServers.a b` is no name for a server"),
        ({"a__b": {"command": "x"}}, "`mcpServers.a__b` is no name for a server"),
        ({"n" * 31: {"command": "x"}}, "is no name for a server"),
        ({"a": 7}, "`mcpServers.a` must be an object"),
        ({"a": {}}, "`mcpServers.a` must have either `command`"),
        ({"a": {"command": "x", "url": "http://h"}}, "`mcpServers.a` must have either `command`"),
        ({"a": {"command": "x", "colour": 1}}, "`mcpServers.a.colour` is not a known field"),
        ({"a": {"command": "x", "args": "-y"}}, "`mcpServers.a.args` must be a list."),
        ({"a": {"command": "x", "env": {"A": 1}}}, "`mcpServers.a.env.A` must be a text."),
        ({"a": {"command": "x", "headers": {"A": "b"}}}, "`mcpServers.a.headers` belongs to a server with `url`"),
        ({"a": {"url": "http://h/", "args": ["b"]}}, "`mcpServers.a.args` belongs to a server with `command`"),
        ({"a": {"url": "file:///etc/passwd"}}, "`mcpServers.a.url` must be an address"),
        ({"a": {"url": "http://h/", "type": "sse"}}, "`mcpServers.a.type` must be `http`"),
        (
            {"a": {"url": "http://h/", "headers": {"A": "b\nc"}}},
            "`mcpServers.a.headers.A` must be the name of a header",
        ),
        ({"a": {"command": "x", "timeout_seconds": 121}}, "`mcpServers.a.timeout_seconds` must be at most 120."),
        ({"a": {"command": "x", "env": {"A": "${NOT_THERE}"}}}, "`mcpServers.a.env.A` names the variable NOT_THERE"),
        ({"a": {"command": ""}}, "`mcpServers.a.command` must not be empty."),
        ({"a": {"command": "x\x00"}}, "`mcpServers.a` holds a NUL character"),
    ],
)
def test_a_mistake_is_a_sentence_with_file_and_field(tmp_path: Path, servers: object, problem: str) -> None:
    with pytest.raises(Permanent) as error:
        read(tmp_path, servers)
    assert str(error.value).startswith(f"The MCP configuration {tmp_path / 'mcp.json'}: ")
    assert problem in str(error.value)


def test_no_sentence_repeats_a_value(tmp_path: Path) -> None:
    for fields in (
        {"env": {"A": ["hunter2"]}},
        {"timeout_seconds": "hunter2"},
        {"env": "hunter2"},
        {"type": "hunter2"},
    ):
        with pytest.raises(Permanent) as error:
            read(tmp_path, {"a": {"command": "x", **fields}})
        assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b'{"mcpServers": {', "is not valid JSON: .* (line 1, column 17)"),
        (b"\xff\xfe", "is not valid JSON in UTF-8"),
        (b"[" * 100_000, "is not valid JSON"),
        (b"[]", "`mcpServers` is missing"),
        (b"{}", "`mcpServers` must be an object"),
        (b'{"mcpServers": {"a": {"command": "x"}, "a": {"url": "http://h"}}}', "`a` stands twice in the same object"),
        (b'{"mcpServers": {"a": {"command": "x", "command": "y"}}}', "`command` stands twice in the same object"),
        (b'{"mcpServers": {}, "servers": {}}', "`servers` is not a known field"),
        (b" " * 1_000_001, "is larger than 1,000,000 bytes"),
    ],
)
def test_a_broken_file_is_a_sentence(tmp_path: Path, data: bytes, problem: str) -> None:
    path = tmp_path / "mcp.json"
    path.write_bytes(data)
    with pytest.raises(Permanent, match=problem.replace("(", r"\(").replace(")", r"\)")):
        read_servers(None, tmp_path, ENVIRONMENT)


def test_a_folder_can_not_be_read(tmp_path: Path) -> None:
    with pytest.raises(Permanent, match="can't be read: Is a directory"):
        read_servers(tmp_path, tmp_path, ENVIRONMENT)
