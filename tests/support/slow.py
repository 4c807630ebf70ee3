"""Name the test files that `make test-fast` leaves out, besides those marked `e2e` and `browser`.

Their tests start processes, wait for real time, or need much data: more than half a second each on a machine that is busy.
"""

from __future__ import annotations

FOLDERS = ("cli", "patterns")
FILES = (
    "agents/mcp/test_hostile_servers.py",
    "agents/mcp/test_real_servers.py",
    "agents/test_models.py",
    "channels/http/test_health.py",
    "channels/http/test_isolation.py",
    "channels/http/test_live.py",
    "channels/http/test_notes.py",
    "channels/http/test_revoked_access.py",
    "channels/http/test_samples.py",
    "channels/http/test_slow_clients.py",
    "channels/http/test_threads.py",
    "channels/http/test_triggers_never_leave.py",
    "channels/http/test_uploads.py",
    "channels/telegram/test_arrivals.py",
    "channels/telegram/test_chats.py",
    "channels/telegram/test_commands_live.py",
    "channels/telegram/test_deliveries.py",
    "channels/telegram/test_delivery_check.py",
    "channels/telegram/test_edits.py",
    "channels/telegram/test_stories.py",
    "channels/telegram/test_token.py",
    "channels/telegram/test_webhook.py",
    "retrieval/test_calibration.py",
    "runtime/test_delivery_promises.py",
    "runtime/test_message_during_commit.py",
    "runtime/test_retention.py",
    "runtime/test_worker.py",
    "storage/test_chat_search.py",
    "storage/test_embedded.py",
    "storage/test_messages.py",
    "storage/test_neighbours.py",
    "storage/test_turn_input.py",
    "turns/test_acceptance.py",
    "turns/test_autonomous_messages.py",
    "turns/test_breaker.py",
    "turns/test_chime_in_among_calls.py",
    "turns/test_long_conversation.py",
    "turns/test_memory.py",
    "turns/test_model_failures.py",
    "turns/test_model_problems.py",
    "turns/test_questions_about_notes.py",
    "turns/test_situation.py",
    "turns/test_summarize.py",
)


def is_slow(path: str) -> bool:
    """Recognize a file of the lists by its path below `tests`."""
    return path in FILES or path.partition("/")[0] in FOLDERS
