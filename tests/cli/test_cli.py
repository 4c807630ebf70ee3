"""Test the real commands as separate processes: output, exit codes, and no tracebacks."""

from __future__ import annotations

import json
import re
import shutil
import socket
import tempfile
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import psutil
import pytest

from rapport.retrieval.embedders import bundled
from tests.support.commands import COMMAND, Home, Terminal
from tests.support.waiting import LIMIT_SECONDS

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def home() -> Generator[Home]:
    """One for all tests of the module, so that its cluster is made once."""
    path = Path(tempfile.mkdtemp(prefix="rapport-cli-"))
    made = Home(path)
    yield made
    if made.postmaster().exists():
        process = psutil.Process(int(made.postmaster().read_text().split()[0]))
        process.terminate()
        process.wait(LIMIT_SECONDS)
    shutil.rmtree(path)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_help_names_every_command(home: Home) -> None:
    ran = home.run("--help")
    assert ran.code == 0
    for command in (
        "serve",
        "worker",
        "chat",
        "doctor",
        "migrate",
        "keys",
        "notes",
        "timers",
        "memory",
        "import",
        "export",
    ):
        assert re.search(rf"\b{command}\b", ran.out), command
        told = home.run(command, "--help") if command in {"chat", "keys"} else None
        assert told is None or (told.code == 0 and "Usage:" in told.out)


def test_an_unknown_command_is_refused(home: Home) -> None:
    ran = home.run("sing")
    assert ran.code == 2
    assert "No such command 'sing'" in ran.err


def test_doctor_says_what_is_in_use_and_that_it_works(home: Home) -> None:
    ran = home.run("doctor")
    assert ran.code == 0, ran
    assert "✗" not in ran.out
    lines = {line.split(":")[0].strip("✓· "): line for line in ran.out.splitlines() if ":" in line}
    assert "the built-in one" in lines["Model"]
    assert "RAPPORT_MODEL=openai:" in lines["Model"]
    assert re.search(r"Postgres 1[89].*embedded in .*schema version \d+, pgvector", lines["Database"])
    assert "✓" in lines["Metadata"]
    assert "no keys; 127.0.0.1 is this machine only" in lines["Access"]
    assert not home.postmaster().exists(), "Postgres still runs"


def test_doctor_says_that_the_weights_were_exchanged(home: Home, tmp_path: Path) -> None:
    copied = tmp_path / "elsewhere" / bundled.MODEL_PACKAGE
    copied.mkdir(parents=True)
    (copied / "__init__.py").touch()
    (copied / bundled.MODEL_FILE).write_bytes(b"other weights")
    ran = home.run("doctor", PYTHONPATH=str(copied.parent))
    assert ran.code == 1
    assert "is not the expected file" in ran.out + ran.err
    assert f"--no-deps {bundled.MODEL_REQUIREMENT}" in ran.out + ran.err


def test_doctor_says_that_a_model_does_not_answer(home: Home) -> None:
    url = f"http://127.0.0.1:{free_port()}/v1"
    ran = home.run("doctor", RAPPORT_MODEL="openai:x", OPENAI_BASE_URL=url)
    assert ran.code == 1
    [trouble] = [line for line in ran.out.splitlines() if line.startswith("✗")]
    assert "openai:x does not answer. The model server can't be reached." in trouble
    assert "OPENAI_BASE_URL" in trouble
    assert url.removeprefix("http://").removesuffix("/v1") in trouble
    assert "✓ Database" in ran.out  # the rest is looked at all the same


@contextmanager
def provider_that_refuses(words: str) -> Generator[str]:
    """The address of a model server that answers every request with 401 and these words."""

    class Refuse(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.dumps({"error": {"message": words}}).encode()
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(401)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
            pass

    with HTTPServer(("127.0.0.1", 0), Refuse) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        server.shutdown()
        thread.join()


def test_doctor_repeats_what_a_provider_says_as_it_is(home: Home) -> None:
    with provider_that_refuses("[/quota] used up, see [link=x] or [red]") as url:
        ran = home.run("doctor", RAPPORT_MODEL="openai:x", OPENAI_BASE_URL=url, OPENAI_API_KEY="sk-" + "a1B2" * 10)
    assert ran.code == 1
    assert "[/quota] used up, see [link=x] or [red]" in ran.out
    assert "The key in OPENAI_API_KEY was refused by the model server." in ran.out
    assert "a1B2a1B2" not in ran.out + ran.err


def test_doctor_never_shows_a_key_however_it_is_quoted(home: Home) -> None:
    key = "of-no-known-shape"
    with provider_that_refuses(f"wrong key: Bearer {key} ({key})") as url:
        ran = home.run(
            "doctor",
            RAPPORT_MODEL="openai:x",
            RAPPORT_EMBEDDINGS="openai:y",
            OPENAI_BASE_URL=url,
            OPENAI_API_KEY=key,
        )
    [_, embedder] = [line for line in ran.out.splitlines() if line.startswith(("✗ Model", "✗ Embedder"))]
    assert embedder.count("wrong key") == 1
    assert key not in ran.out + ran.err


def test_keys_are_made_listed_and_revoked(home: Home) -> None:
    assert "There are no keys" in home.run("keys", "list").out
    made = home.run("keys", "create", "my phone", "--user", "ana")
    assert made.code == 0
    secret = made.out.strip()
    assert re.fullmatch(r"rapport_[\w-]{43}", secret)
    assert secret not in made.err
    assert "it can't be shown again" in made.err
    key_id = made.err.split()[1]

    listed = home.run("keys", "list")
    row = next(line for line in listed.out.splitlines() if key_id in line)
    assert re.search(r"ana +│ user ", row)
    assert "my phone" in row
    assert secret not in listed.out

    assert home.run("keys", "revoke", key_id) == (0, f"Revoked {key_id}, 'my phone' of 'ana'.\n", "")
    assert f"no active key {key_id!r}; `rapport keys list` shows them" in home.fails("keys", "revoke", key_id)
    data = b"".join(file.read_bytes() for file in (home.path / "data").glob("*.log"))
    assert secret.encode() not in data


def test_a_key_is_named_by_its_whole_id_the_beginning_of_it_or_its_name(home: Home) -> None:
    names = ("phone", "phone", "[/laptop] " + "x" * 100, "tablet")
    ids = [home.run("keys", "create", name, "--user", "ana" * 20).err.split()[1] for name in names]
    for columns in ("80", "40"):
        listed = home.run("keys", "list", COLUMNS=columns).out
        assert all(key_id in listed for key_id in ids), listed
    told = home.fails("keys", "revoke", "phone")
    assert "'phone' stands for several keys" in told
    assert all(key_id in told for key_id in ids[:2])
    assert "stands for several keys" in home.fails("keys", "revoke", ids[0][:3])
    for wrong in ("", "tab", "0123"):
        assert f"no active key {wrong!r}" in home.fails("keys", "revoke", wrong)
    assert ids[0] in home.run("keys", "revoke", ids[0]).out
    assert ids[1] in home.run("keys", "revoke", "phone").out  # the other one is revoked
    assert ids[3] in home.run("keys", "revoke", "tablet").out
    assert ids[2] in home.run("keys", "revoke", ids[2][:2].lower()).out


def test_a_key_has_a_role_and_a_user_with_a_proper_name(home: Home) -> None:
    for arguments, told in (
        ([], "operator 'local'"),
        (["--role", "user"], "user 'local'"),
        (["--user", "ben"], "user 'ben'"),
        (["--user", "ben", "--role", "operator"], "operator 'ben'"),
    ):
        made = home.run("keys", "create", "laptop", *arguments)
        assert f" for {told} (laptop)" in made.err, made
        assert home.run("keys", "revoke", made.err.split()[1]).code == 0
    before = home.run("keys", "list").out
    for name, told in (
        ("*", "stands for everyone"),
        ("", "is empty"),
        (" ", "is empty"),
        ("a" * 201, "the limit is 200"),
        ("a\nb", "control character"),
        ("a\x1b[31mb", "control character"),
    ):
        refused = home.run("keys", "create", "laptop", "--user", name)
        assert refused.code == 2
        assert told in " ".join(refused.err.replace("│", " ").split())
    assert home.run("keys", "create", "laptop", "--role", "king").code == 2
    assert home.run("keys", "list").out == before


def test_the_schema_goes_down_and_up(home: Home) -> None:
    assert home.run("migrate").code == 0
    assert home.run("migrate").out == "Nothing to do: the schema is up to date.\n"
    refused = home.run("migrate", "--to", "0")  # nobody says yes
    assert refused.code == 1
    assert "This deletes everything from the database" in refused.out
    assert home.run("migrate").out == "Nothing to do: the schema is up to date.\n"
    down = home.run("migrate", "--to", "0", "--yes")
    assert down.code == 0
    assert re.fullmatch(r"(down \d{4} \w+\n)+", down.out)
    up = home.run("migrate")
    assert re.fullmatch(r"(up \d{4} \w+\n)+", up.out)
    assert sorted(up.out.replace("up", "").split()) == sorted(down.out.replace("down", "").split())
    for version in ("99", "-1"):
        assert re.search(rf"there is no version {version}; .* from 0 .* to \d+", home.fails("migrate", "--to", version))


@pytest.mark.parametrize(
    ("command", "environment", "says"),
    [
        ("serve", {"PORT": "abc"}, "PORT: .*integer"),
        ("serve", {"PORT": "70000"}, "PORT: .*65535"),
        ("serve", {"LOG_LEVEL": "loud"}, "LOG_LEVEL='loud' is none of debug, info, warning, error"),
        ("serve", {"RAPPORT_LOG_FORMAT": "xml"}, "RAPPORT_LOG_FORMAT: .*json"),
        ("serve", {"RAPPORT_TURN_DEADLINE": "-1"}, "RAPPORT_TURN_DEADLINE: .*greater than 0"),
        ("chat", {"RAPPORT_MODEL": "nonsense"}, "RAPPORT_MODEL='nonsense' is not a model.*builtin"),
        ("serve", {"RAPPORT_MODEL": "nonsense", "PORT": "0"}, "RAPPORT_MODEL='nonsense' is not a model.*builtin"),
        ("serve", {"HOST": "0.0.0.0", "PORT": "0"}, "HOST=0.0.0.0 can be reached by others.*rapport keys create"),
        ("serve", {"HOST": "no.such.host.invalid", "PORT": "0"}, "can't listen on no.such.host.invalid"),
        ("serve", {"RAPPORT_FAILPOINT": "nowhere", "PORT": "0"}, "unknown failpoint"),
    ],
    ids=str,
)
def test_a_wrong_setting_is_said_in_one_line(home: Home, command: str, environment: dict[str, str], says: str) -> None:
    assert re.search(says, home.fails(command, **environment))


def test_a_taken_port_is_said_in_one_line(home: Home) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert re.search(rf"can't listen on 127.0.0.1:{port}: .*Set PORT", home.fails("serve", PORT=port))


def test_a_chat_through_a_pipe(home: Home) -> None:
    ran = home.run(
        "chat",
        stdin="hello\nmy name is Ana\nwhat is my name?\n/history\n/help\n/new\n/history\n/quit\nunread\n",
    )
    assert ran.code == 0, ran
    assert ran.err == ""
    before, after = re.split(r"^you a new conversation$", ran.out, flags=re.MULTILINE)
    hello, name, answer, history, helped = re.split(r"^you ", before, flags=re.MULTILINE)[1:6]
    assert "Companion · builtin" in before
    assert all(text.strip() for text in (hello, name))
    assert "Ana" in answer
    assert "my name is Ana" in history
    assert history.count("what is my name?") == 1  # what was piped in is not echoed
    assert "/new begin a new conversation" in helped
    assert "nothing was said yet" in after
    assert "Ana" not in after
    assert "unread" not in ran.out


def test_a_chat_says_what_is_wrong_with_the_model(home: Home) -> None:
    with provider_that_refuses("no") as url:
        ran = home.run(
            "chat", stdin="hello\n/quit\n", RAPPORT_MODEL="openai:x", OPENAI_BASE_URL=url, OPENAI_API_KEY="sk-wrong-key"
        )
    assert ran.code == 0, ran
    told = " ".join(ran.out.split())
    assert "Temporary issue generating response." in told
    assert "The key in OPENAI_API_KEY was refused by the model server. Put a valid key into .env and restart." in told


def test_a_line_goes_on_after_a_backslash_and_help_says_so(home: Home) -> None:
    ran = home.run("chat", stdin="/help\nmy name is Ana \\\nand I like tea\nwhat do I like?\n")
    assert ran.code == 0
    assert "A line that ends with \\ goes on in the next one." in ran.out
    assert "You like tea" in ran.out


def test_the_end_of_input_leaves_the_chat_and_it_goes_on_where_it_was_left(home: Home) -> None:
    assert home.run("chat", stdin="my name is Wilhelmina").code == 0
    assert not home.postmaster().exists(), "Postgres still runs"
    ran = home.run("chat", "--continue", stdin="what is my name?\n")
    assert ran.code == 0
    assert ran.out.count("Wilhelmina") >= 2  # what was said, and the answer


def test_what_cannot_be_said_is_refused_and_the_chat_goes_on(home: Home) -> None:
    ran = home.run("chat", stdin=b"bad \xff byte\na\x00b\n[/nonsense] [red]\nmy name is Ana\nwhat is my name?\n")
    assert ran.code == 0, ran
    assert "isn't valid Unicode text" in ran.out
    assert "NUL" in ran.out
    assert "Ana" in ran.out


def test_an_unknown_agent_is_said_in_one_line(home: Home) -> None:
    assert "There is no agent 'nobody'; there are companion, librarian" in home.fails("chat", "--agent", "nobody")


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_a_chat_in_a_real_terminal(home: Home) -> None:
    terminal = Terminal(home, f"env -u COLUMNS {COMMAND} chat; echo left with $?; exec cat")
    try:
        terminal.shows(r"you $|you\s*$")
        terminal.types("my name is Ana", "Enter")
        terminal.shows(r"you my name is Ana\n.*\S.*\n.*you\s*$")
        terminal.types("what is my name?", "Enter")
        shown = terminal.shows(r"what is my name\?\n.*Ana.*you\s*$")
        assert "Traceback" not in shown
        terminal.types("Up", "Up")
        terminal.shows(r"you my name is Ana\s*$")
        terminal.types("C-u", "日本語", "Left", "x", "C-e", "BSpace")
        terminal.shows(r"you 日本x\s*$")
        terminal.types("C-u")
        terminal.pastes("I like tea\nand coffee")
        terminal.shows(r"you I like tea\n *and coffee\s*$")
        terminal.types("Enter")
        terminal.shows(r"you I like tea\n *and coffee\n\S.*you\s*$")  # one message, answered once
        terminal.types("C-d")
        shown = terminal.shows(r"left with \d+")
        assert "left with 0" in shown
        assert "Traceback" not in shown
    finally:
        terminal.close()


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_ctrl_c_at_the_prompt_leaves_without_a_traceback(home: Home) -> None:
    terminal = Terminal(home, f"{COMMAND} chat; echo left with $?; exec cat")
    try:
        terminal.shows(r"you\s*$")
        terminal.types("C-c")
        shown = terminal.shows(r"left with \d+")
        assert "Traceback" not in shown
    finally:
        terminal.close()
