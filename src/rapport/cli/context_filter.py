"""The context engine as a filter: one request per input line, one answer per output line, without a database."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

import orjson

from rapport.context.engine import SelectionOptions, select_context
from rapport.domain.errors import InvalidInput
from rapport.ingest.archive_rows import as_mapping
from rapport.turns.sent_context import SentContext, read_sent_context

MAX_LINE = 50_000_000
"""Maximum size of one request in bytes."""
_EXPECTED = "`{qid, messages: [{id, author, time, text, mentions?, reply_to?, is_agent?}], trigger: {…}}`"


class BadRequest(InvalidInput):
    """A line that can't be answered: the reason, and the id of the request if it is known."""

    def __init__(self, reason: str, qid: str | float | None = None) -> None:
        super().__init__(reason)
        self.qid = qid


@dataclass(frozen=True, slots=True)
class Request(SentContext):
    """A call and its candidate messages, and the id of the request."""

    qid: str | float


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
    messages: object = row.get("messages")
    if not isinstance(messages, list):
        raise BadRequest(f"`messages` is missing or isn't a list: {_EXPECTED}.", qid)
    try:
        sent = read_sent_context(cast("list[Any]", messages), row.get("trigger"))
        return Request(sent.call, sent.found, sent.given, qid)
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
