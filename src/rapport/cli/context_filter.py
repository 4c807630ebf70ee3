"""The context engine as a filter: one request per input line, one answer per output line, without a database."""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, BinaryIO, TypeAlias, cast

import orjson

from rapport.context.engine import SelectionOptions, select_context
from rapport.context.question import drop_empty_replies
from rapport.domain.context_selection import MAX_RECENT_MESSAGES, CandidateMessages
from rapport.domain.conversation import Author, Message
from rapport.domain.errors import InvalidInput
from rapport.ingest.archive_rows import as_mapping, read_id, read_name

MAX_LINE = 50_000_000
"""Maximum size of one request in bytes."""
DEPTH, REPLIES = 20, 40
"""Levels of replies above the anchor, and messages below it: as many as a turn loads."""
NEIGHBOURS = 20
"""Messages on either side of the anchor: as many as a turn loads."""

GivenId: TypeAlias = "str | int"
"""An id as written in the request."""

_MOMENT = timedelta(microseconds=1)
_LAST_YEAR = 9998
_EXPECTED = "`{qid, messages: [{id, author, time, text, mentions?, reply_to?, is_agent?}], trigger: {…}}`"


class BadRequest(InvalidInput):
    """A line that can't be answered: the reason, and the id of the request if it is known."""

    def __init__(self, reason: str, qid: str | float | None = None) -> None:
        super().__init__(reason)
        self.qid = qid


@dataclass(frozen=True, slots=True)
class Request:
    """A call and its candidate messages, as a turn would load them."""

    qid: str | float
    call: Message
    found: CandidateMessages
    given: Mapping[str, GivenId]


def answer_all(
    source: BinaryIO, sink: BinaryIO, choice: SelectionOptions, *, explain: bool, complain: Callable[[str], None]
) -> bool:
    """Answer each line before the next is read; return True if all were valid. An invalid line gets an error as its answer."""
    is_good = True
    for number, line in enumerate(_lines(source), 1):
        if line is not None and not line.strip():
            continue
        try:
            if line is None:
                raise BadRequest(f"The line has more than {MAX_LINE:,} bytes.")
            answer = select_for_request(read(line), choice, explain=explain)
        except BadRequest as error:
            is_good = False
            answer = {"qid": error.qid, "error": str(error)}
            complain(f"line {number:,}: {error}")
        sink.write(orjson.dumps(answer, option=orjson.OPT_APPEND_NEWLINE))
        sink.flush()
    return is_good


def _lines(source: BinaryIO) -> Generator[bytes | None]:
    """Yield the lines; None for one that is too long, which is never read completely into memory."""
    while line := source.readline(MAX_LINE + 1):
        if len(line) <= MAX_LINE:
            yield line
            continue
        while line and not line.endswith(b"\n"):
            line = source.readline(MAX_LINE)
        yield None


def select_for_request(request: Request, choice: SelectionOptions, *, explain: bool) -> dict[str, Any]:
    """Return the messages that belong to the call, oldest first, without the call itself."""
    selection, given_ids = select_context(request.call, request.found, choice), request.given
    earlier = selection.earlier
    answer: dict[str, Any] = {"qid": request.qid, "ids": [given_ids[chosen.message.id] for chosen in earlier]}
    if explain:
        answer["strategy"] = selection.strategy
        answer["anchor"] = given_ids[selection.anchor.id] if selection.anchor else None
        answer["messages"] = [
            {"id": given_ids[chosen.message.id], "reasons": chosen.reasons, "score": round(chosen.score, 3)}
            for chosen in earlier
        ]
        answer["passed_over"] = [
            {"id": given_ids[message.id], "score": round(score, 3)} for message, score in selection.passed_over
        ]
    return answer


def read(line: bytes) -> Request:
    """Read one line as a request; raise BadRequest if it is none."""
    row = as_mapping(_parse_json(line))
    if row is None:
        raise BadRequest(f"A request is a JSON object: {_EXPECTED}.")
    qid: object = row.get("qid")
    if not isinstance(qid, str | int | float) or isinstance(qid, bool):
        raise BadRequest("`qid` is missing or is neither a text nor a number.")
    try:
        return _request(qid, row.get("messages"), row.get("trigger"))
    except InvalidInput as error:
        raise BadRequest(str(error), qid) from error


def _parse_json(line: bytes) -> object:
    try:
        return orjson.loads(line.removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError as error:
        raise _not_json(line, str(error)) from error


def _not_json(line: bytes, reason: str) -> BadRequest:
    """Return an error that names the request, and NaN or Infinity if the line has them, which are not JSON."""
    constants: list[str] = []
    try:
        row = as_mapping(json.loads(line, parse_constant=constants.append))
    except (ValueError, RecursionError):
        return BadRequest(f"It isn't valid JSON: {reason}.")
    qid = (row or {}).get("qid")
    text = f"JSON has no {constants[0]}: every number is finite" if constants else f"It isn't valid JSON: {reason}"
    return BadRequest(f"{text}.", qid if isinstance(qid, str) and qid.isprintable() else None)


def _request(qid: str | float, messages: object, trigger: object) -> Request:
    if not isinstance(messages, list):
        raise InvalidInput(f"`messages` is missing or isn't a list: {_EXPECTED}.")
    given_ids: dict[str, GivenId] = {}
    authors: dict[str, Author] = {}
    told: list[Message] = []
    for row in cast("list[Any]", messages):
        try:
            told.append(_message(row, given_ids, authors))
        except InvalidInput as error:
            raise InvalidInput(f"`messages[{len(told)}]`: {error}") from error
    try:
        call = _message(trigger, given_ids, authors)
    except InvalidInput as error:
        raise InvalidInput(f"`trigger`: {error}") from error
    if call.reply_to_id == call.id:
        raise InvalidInput("`trigger`: It can't be a reply to itself.")
    if call.role != "user":
        raise InvalidInput("`trigger`: `is_agent` can't be true: the agent doesn't call itself.")
    told = _in_order([message for message in drop_empty_replies(told) if message.created_at <= call.created_at])
    if told and call.created_at <= told[-1].created_at:
        call = replace(call, created_at=told[-1].created_at + _MOMENT)
    return Request(qid, call, _surroundings(call, told), given_ids)


def _message(value: object, given_ids: dict[str, GivenId], authors: dict[str, Author]) -> Message:
    row = as_mapping(value)
    if row is None:
        raise InvalidInput(
            "It is missing or isn't a JSON object, `{id, author, time, text, mentions?, reply_to?, is_agent?}`."
        )
    id_ = read_id(row.get("id"))
    if id_ in given_ids:
        raise InvalidInput(f"Another message has the id {id_[:60]!r} already.")
    given_ids[id_] = row["id"]
    text, reply_to = row.get("text"), row.get("reply_to")
    if not isinstance(text, str):
        raise InvalidInput("`text` is missing or isn't a text.")
    is_agent = row.get("is_agent", False)
    if not isinstance(is_agent, bool):
        raise InvalidInput("`is_agent` is true or false: whether the agent said it.")
    return Message(
        id_,
        "",
        "assistant" if is_agent else "user",
        text,
        _moment(row.get("time")),
        _author(row, authors),
        None if reply_to is None else read_id(reply_to, what="reply_to"),
        mentions=_mentions(row.get("mentions")),
    )


def _author(row: Mapping[str, Any], authors: dict[str, Author]) -> Author | None:
    """Return the author of a row; each author is read once."""
    if "author" not in row:
        raise InvalidInput("`author` is missing: a name, or null if nobody is named.")
    name = row["author"]
    if name is None:
        return None
    if not isinstance(name, str) or name not in authors:
        name = read_name(name, what="author")
        authors[name] = Author(name, name)
    return authors[name]


def _mentions(value: object) -> Sequence[str]:
    if not value and (value is None or isinstance(value, list)):
        return ()
    if isinstance(value, list) and all(isinstance(name, str) for name in cast("list[object]", value)):
        return cast("list[str]", value)
    raise InvalidInput("`mentions` is a list of names.")


def _moment(value: object) -> datetime:
    try:
        if isinstance(value, str):
            time = datetime.fromisoformat(value.strip())
            time = (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            time = datetime.fromtimestamp(value, UTC)
        else:
            raise InvalidInput("`time` is missing or isn't a time: seconds since 1970, or ISO 8601.")
        if time.year > _LAST_YEAR:
            raise OverflowError
    except (ValueError, OverflowError, OSError) as error:
        raise InvalidInput(
            f"`time` isn't a time: {str(value)[:40]!r}; it is seconds since 1970, or ISO 8601."
        ) from error
    return time


def _in_order(messages: list[Message]) -> list[Message]:
    """Return the messages oldest first, each with its own time, as they would be stored; equal times keep their order."""
    messages.sort(key=lambda message: message.created_at)
    for number in range(1, len(messages)):
        before, message = messages[number - 1], messages[number]
        if message.created_at <= before.created_at:
            messages[number] = replace(message, created_at=before.created_at + _MOMENT)
    return messages


def _surroundings(call: Message, messages: Sequence[Message]) -> CandidateMessages:
    recent = messages[-MAX_RECENT_MESSAGES:]
    index = next((n for n, message in enumerate(messages) if message.id == call.reply_to_id), None)
    if call.reply_to_id is None or index is None:
        return CandidateMessages(recent)
    around = messages[max(0, index - NEIGHBOURS) : index + NEIGHBOURS + 1]
    return CandidateMessages(recent, messages[index], _chain(messages[index], messages), around)


def _chain(anchor: Message, messages: Sequence[Message]) -> list[Message]:
    """Return the messages that replies link to the anchor, above and below it, each once."""
    by_id = {message.id: message for message in messages}
    replies: defaultdict[str, list[Message]] = defaultdict(list)
    for message in messages:
        if message.reply_to_id is not None:
            replies[message.reply_to_id].append(message)
    linked = {anchor.id: anchor}
    parent = by_id.get(anchor.reply_to_id or "")
    while parent is not None and parent.id not in linked and len(linked) <= DEPTH:
        linked[parent.id] = parent
        parent = by_id.get(parent.reply_to_id or "")
    limit, queue = len(linked) + REPLIES, deque([anchor])
    while queue:
        for message in replies[queue.popleft().id]:
            if message.id not in linked and len(linked) < limit:
                linked[message.id] = message
                queue.append(message)
    del linked[anchor.id]
    return sorted(linked.values(), key=lambda message: message.created_at)
