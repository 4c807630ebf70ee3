"""What a model may do beside talking, within limits."""

from __future__ import annotations

from langchain_core.messages import AIMessage

from rapport.agent.tools import MOST_CALLS, use_tools


def test_a_model_that_wants_to_note_down_everything_is_told_to_stop() -> None:
    calls = [
        {"name": "upsert_memory", "args": {"content": f"The user likes {number}."}, "id": str(number)}
        for number in range(1_000)
    ]
    answers, saved = use_tools(AIMessage("", tool_calls=calls))
    assert len(saved) == MOST_CALLS
    assert [answer.tool_call_id for answer in answers] == [str(number) for number in range(1_000)]
    assert {str(answer.text) for answer in answers[MOST_CALLS:]} == {"Not done: too many calls."}
