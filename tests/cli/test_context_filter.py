"""Test `rapport context select`: the real command in a pipe, with valid and invalid requests."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rapport.cli import context_filter as selecting
from rapport.cli.context_filter import BadRequest, read, select_for_request
from rapport.context.engine import SelectionOptions
from rapport.domain.context_selection import MAX_RECENT_MESSAGES, Strategy
from rapport.turns.sent_context import REPLIES
from tests.support.cases import every_case
from tests.support.commands import COMMAND, Home, Ran
from tests.support.waiting import LIMIT_SECONDS

NOW = 1_760_000_000.0
MINUTE, DAY = 60.0, 86_400.0


def said(id_: str | int, text: str, *, ago: float, author: str = "Ana", **more: Any) -> dict[str, Any]:
    return {"id": id_, "author": author, "time": NOW - ago, "text": text, **more}


A = said("A", "We should look at the restaurant for the gathering", ago=3 * DAY)
B = said("B", "Any thoughts?", ago=2 * DAY, author="Ben")
C = said("C", "The thai restaurant on 10th Ave?", ago=10 * MINUTE, author="Cleo")
D = said("D", "@bot thoughts?", ago=0, mentions=["bot"])


def request(*messages: Any, trigger: Any = D, qid: Any = "q") -> dict[str, Any]:
    return {"qid": qid, "messages": list(messages), "trigger": trigger}


def select(home: Home, *lines: Any, arguments: tuple[str, ...] = ()) -> Ran:
    """Return the command's output for these lines; values that are not text are encoded as JSON."""
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    return home.run("context", "select", *arguments, stdin="".join(f"{text}\n" for text in texts))


def answers(ran: Ran) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ran.out.splitlines()]


@pytest.mark.e2e
def test_scenario_a_after_a_long_silence_the_session_begins_anew(home: Home) -> None:
    ran = select(home, request(A, B, C), arguments=("--strategy", "time_gap"))
    assert (ran.code, ran.err) == (0, "")
    assert answers(ran) == [{"qid": "q", "ids": ["C"]}]  # D is the trigger, which the asker has


@pytest.mark.e2e
@pytest.mark.parametrize("strategy", ["time_gap", "relevant", "thread"])
def test_scenario_b_what_is_replied_to_is_given_however_old_it_is(home: Home, strategy: str) -> None:
    reply = said("D", "@bot help with this", ago=0, author="Ben", mentions=["bot"], reply_to="A")
    ran = select(home, request(A, trigger=reply), arguments=("--strategy", strategy, "--explain"))
    assert (ran.code, ran.err) == (0, "")
    [told] = answers(ran)
    assert (told["ids"], told["anchor"], told["strategy"]) == (["A"], "A", strategy)
    assert "anchor" in told["messages"][0]["reasons"]
    assert set(told) == {"qid", "ids", "strategy", "anchor", "messages", "passed_over"}


@pytest.mark.e2e
def test_a_request_is_answered_before_the_next_one_comes(home: Home) -> None:
    with subprocess.Popen(
        [COMMAND, "context", "select"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=home.environment(),
        cwd=home.path,
        text=True,
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        assert running.stderr is not None
        for qid in ("first", 2, "third"):
            running.stdin.write(json.dumps(request(C, qid=qid)) + "\n")
            running.stdin.flush()
            assert json.loads(running.stdout.readline())["qid"] == qid
        running.stdout.close()  # as `head` does
        running.stdin.write(json.dumps(request(C)) + "\n")
        running.stdin.close()
        assert running.stderr.read() == ""
        running.wait(LIMIT_SECONDS)
    assert not (home.path / "data").exists()  # neither a database nor anything else was started


@pytest.mark.e2e
def test_a_bad_line_gets_its_error_and_the_others_their_answers(home: Home) -> None:
    good = json.dumps(request(C, qid="good"))
    bad: list[tuple[Any, object, str]] = [
        ("no JSON \x1b[31m", None, "It isn't valid JSON"),
        ("[1, 2]", None, "A request is a JSON object"),
        ("[" * 100_000, None, "It isn't valid JSON"),
        ('{"qid": "half", "messages": [], "trigger": {"text": "\\ud800"}}', "half", "It isn't valid JSON"),
        (request(C, qid=None), None, "`qid` is missing"),
        (request(C, qid=True), None, "`qid` is missing"),
        ({"qid": 1, "trigger": D}, 1, "`messages` is missing"),
        ({"qid": 2, "messages": {}, "trigger": D}, 2, "`messages` is missing or isn't a list"),
        ({"qid": 3, "messages": [C]}, 3, "`trigger`: It is missing"),
        (request("C", qid=4), 4, "`messages[0]`: It is missing or isn't a JSON object"),
        (request(A, {**C, "id": None}, qid=5), 5, "`messages[1]`: `id` is missing"),
        (request({"id": "C", "time": 1, "text": ""}, qid=6), 6, "`messages[0]`: `author` is missing"),
        (request({**C, "author": 7}, qid=7), 7, "`author` is missing or isn't a name"),
        (request({**C, "text": None}, qid=8), 8, "`text` is missing"),
        (request({"id": "C", "author": "Ana", "text": ""}, qid=9), 9, "`time` is missing"),
        (request({**C, "time": "yesterday"}, qid=10), 10, "`time` isn't a time: 'yesterday'"),
        (request({**C, "time": NOW * 1000}, qid=11), 11, "it is seconds since 1970"),
        (request({**C, "time": float("nan")}, qid="nan"), "nan", "JSON has no NaN"),
        (request(C, trigger={**D, "time": float("inf")}, qid="inf"), "inf", "JSON has no Infinity"),
        (request({**C, "mentions": "bot"}, qid=12), 12, "`mentions` is a list of names"),
        (request({**C, "reply_to": []}, qid=13), 13, "`reply_to` is missing or is neither"),
        (request(C, C, qid=14), 14, "`messages[1]`: Another message has the id 'C' already."),
        (request({**A, "id": 1}, {**B, "id": "1"}, qid=15), 15, "Another message has the id '1' already."),
        (request(C, {**D, "time": NOW - 1}, qid=16), 16, "`trigger`: Another message has the id 'D' already."),
        (request(C, trigger={**D, "reply_to": "D"}, qid=17), 17, "can't be a reply to itself"),
        (request({**C, "is_agent": "yes"}, qid=18), 18, "`messages[0]`: `is_agent` is true or false"),
        (request(C, trigger={**D, "is_agent": True}, qid=19), 19, "the agent doesn't call itself"),
    ]
    ran = select(home, good, *(line for line, _, _ in bad), "", "  ", good)
    assert ran.code == 1
    first, *wrong, last = answers(ran)
    assert first == last == {"qid": "good", "ids": ["C"]}
    complaints = ran.err.splitlines()
    assert len(wrong) == len(complaints) == len(bad)
    for number, ((_, qid, reason), answer, complaint) in enumerate(zip(bad, wrong, complaints, strict=True), 2):
        assert (answer["qid"], set(answer)) == (qid, {"qid", "error"})
        assert reason in answer["error"]
        assert complaint.startswith(f"rapport: line {number}: ")
        assert reason[:40] in complaint
    assert "\x1b" not in ran.err


@pytest.mark.e2e
def test_options_that_make_no_sense_are_refused(home: Home) -> None:
    for arguments in (
        ["--strategy", "magic"],
        ["--tokens", "0"],
        ["--gap", "nan"],
        ["--gap", "-1"],
        ["--lookback", "x"],
    ):
        ran = home.run("context", "select", *arguments)
        assert (ran.code, ran.out) == (2, ""), arguments
        assert arguments[0] in ran.err


@pytest.mark.e2e
def test_the_help_says_that_the_trigger_is_none_of_the_messages(home: Home) -> None:
    told = " ".join(home.run("context", "select", "--help").out.split())
    assert "The trigger is none of the messages, and its id is not in the answer." in told


def ids_of(told: dict[str, Any], choice: SelectionOptions | None = None) -> list[str | int]:
    return select_for_request(read(json.dumps(told).encode()), choice or SelectionOptions("time_gap"), explain=False)[
        "ids"
    ]


def test_a_line_that_is_too_long_is_never_held_whole(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    monkeypatch.setattr(selecting, "MAX_LINE", 1_000)
    long = json.dumps(request(C, said("long", "x" * 5_000, ago=1))).encode()
    good = json.dumps(request(C)).encode()
    sink, complaints = io.BytesIO(), list[str]()
    source = io.BytesIO(b"\n".join([long, good, long]))
    is_good = selecting.answer_all(
        source, sink, SelectionOptions("time_gap"), explain=False, complain=complaints.append
    )
    assert not is_good
    told = [json.loads(line) for line in sink.getvalue().splitlines()]
    too_long = {"qid": None, "error": "The line has more than 1,000 bytes."}
    assert told == [too_long, {"qid": "q", "ids": ["C"]}, too_long]
    assert complaints == [f"line {number}: The line has more than 1,000 bytes." for number in (1, 3)]


def test_of_ten_thousand_messages_the_latest_are_looked_at_and_the_anchor() -> None:
    chat = [said(number, f"number {number}", ago=10_000 - number) for number in range(10_000)]
    found = read(json.dumps(request(*chat)).encode()).found
    assert [message.id for message in found.recent] == [
        str(number) for number in range(10_000 - MAX_RECENT_MESSAGES, 10_000)
    ]
    assert (found.anchor, list(found.chain), list(found.around)) == (None, [], [])

    found = read(json.dumps(request(*chat, trigger={**D, "reply_to": 5_000})).encode()).found
    assert found.anchor is not None
    assert found.anchor.id == "5000"
    assert [message.id for message in found.around] == [str(number) for number in range(4_980, 5_021)]
    assert 5_000 in ids_of(request(*chat, trigger={**D, "reply_to": 5_000}))


def test_a_chain_of_replies_is_followed_both_ways_and_a_circle_ends() -> None:
    links = {1: None, 2: 1, 3: 2, 4: 3, 5: 3, 6: 5, 7: None}
    chat = [said(one, "words", ago=100 - one, reply_to=to) for one, to in links.items()]
    found = read(json.dumps(request(*chat, trigger={**D, "reply_to": 3})).encode()).found
    assert [message.id for message in found.chain] == ["1", "2", "4", "5", "6"]

    circle = [said(one, "words", ago=100 - one, reply_to=one % 3 + 1) for one in (1, 2, 3)]
    circle.append(said("self", "me", ago=1, reply_to="self"))
    for start, linked in ((2, ["1", "3"]), ("self", [])):
        found = read(json.dumps(request(*circle, trigger={**D, "reply_to": start})).encode()).found
        assert [message.id for message in found.chain] == linked

    flood = [said("first", "?", ago=1_000), *(said(n, "!", ago=900 - n, reply_to="first") for n in range(500))]
    found = read(json.dumps(request(*flood, trigger={**D, "reply_to": "first"})).encode()).found
    assert len(found.chain) == REPLIES


def test_a_parent_that_is_not_given_is_no_anchor() -> None:
    assert ids_of(request(A, C, trigger={**D, "reply_to": "gone"})) == ["C"]


def test_ids_come_back_as_they_were_given_and_in_the_order_of_time() -> None:
    chat = [said("b", "second", ago=20), said(7, "third", ago=10), said("a", "first", ago=30)]
    assert ids_of(request(*chat)) == ["a", "b", 7]


def test_what_was_said_in_one_moment_keeps_its_order_and_the_future_is_not_known() -> None:
    together = [said(id_, "at once", ago=0) for id_ in ("z", "a", "m")]
    told = read(json.dumps(request(*together, said("later", "…", ago=-1))).encode())
    assert [message.id for message in told.found.recent] == ["z", "a", "m"]
    moments = [*(message.created_at for message in told.found.recent), told.call.created_at]
    assert moments == sorted(set(moments))
    assert moments[-1] - moments[0] < timedelta(milliseconds=1)


@every_case("time", [NOW, int(NOW), "2025-10-09T08:53:20Z", "2025-10-09T10:53:20+02:00", "2025-10-09 08:53:20"])
def test_a_time_is_seconds_or_iso_8601(time: str | float) -> None:
    told = read(json.dumps(request(trigger={**D, "time": time})).encode())
    assert told.call.created_at == datetime.fromtimestamp(NOW, UTC)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
TIMES = st.floats() | st.integers() | st.sampled_from(["9999-12-31T23:59:59.999999", "0001-01-01T00:00:00+14:00"])
ROWS = st.fixed_dictionaries(
    {
        "id": st.sampled_from(["A", "B", "C", 1, "1"]),
        "author": st.sampled_from(["Ana", "Ben", None]),
        "time": st.just(NOW) | TIMES,
        "text": st.text(max_size=8),
    },
    optional={"mentions": st.lists(st.text(max_size=3)) | JSON, "reply_to": st.sampled_from(["A", "D", 1]) | JSON},
)


@given(
    rows=st.lists(ROWS | JSON, max_size=4), trigger=ROWS | JSON, qid=JSON, strategy=st.sampled_from(get_args(Strategy))
)
def test_whatever_a_line_holds_it_is_answered_or_refused(
    rows: list[Any], trigger: Any, qid: Any, strategy: Strategy
) -> None:
    line = json.dumps({"qid": qid, "messages": rows, "trigger": trigger}).encode()
    try:
        told = read(line)
    except BadRequest:
        return
    answer = select_for_request(told, SelectionOptions(strategy), explain=True)
    known = [row["id"] for row in rows]
    assert answer["qid"] == qid
    assert len(answer["ids"]) == len(set(answer["ids"]))
    assert set(answer["ids"]) <= set(known)


def test_what_the_agent_said_is_treated_as_the_server_treats_it() -> None:
    """Without `is_agent` the agent is one more person, with whom every caller talks."""
    dinner = [
        said("1", "Where shall we eat on Friday?", ago=60 * MINUTE, author="Ann"),
        said("2", "Italian would be nice", ago=58 * MINUTE, author="Ben"),
        said("3", "@bot what do you think?", ago=57 * MINUTE, author="Ann", mentions=["bot"]),
        said("4", "Both are fine.", ago=56 * MINUTE, author="bot", reply_to="3", is_agent=True),
        said("5", "I'd rather have Indian", ago=55 * MINUTE, author="Cleo"),
        said("6", "", ago=54 * MINUTE, author="bot", is_agent=True),  # cancelled before it began
    ]
    told = read(json.dumps(request(*dinner)).encode())
    assert [(one.id, one.role) for one in told.found.recent if one.role != "user"] == [("4", "assistant")]
    call = said("T", "@bot summarise the discussion please", ago=0, author="Ben", mentions=["bot"])
    assert {"1", "2", "5"} <= set(ids_of(request(*dinner, trigger=call), SelectionOptions()))
