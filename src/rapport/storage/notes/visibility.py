"""Write the SQL of a scope: which notes a person or a turn may read, each id once (ADR 84)."""

from __future__ import annotations

from typing import Any

from rapport.domain.note_scope import NoteScope

# A turn reads what is shared with its conversation, whose id it brings along: nothing is looked up.
_FOR_TURN = "ARRAY['everyone', %(conversation)s]"
_FOR_PERSON = "(ARRAY['everyone'] || ARRAY(SELECT id FROM conversations WHERE owner_id = %(owner)s AND kind = 'group'))"

# The first note of each id, by the index on shared notes. Only keys: texts would make the sort slow.
_SHARED = """
    SELECT DISTINCT ON (id) owner_id, id FROM notes s
    WHERE shared_with = ANY({audience}) AND owner_id <> %(owner)s {condition}
      AND NOT EXISTS (SELECT FROM notes own WHERE own.owner_id = %(owner)s AND own.id = s.id)
    ORDER BY id, shared_with <> 'everyone', created_at, owner_id
"""

# Without this array and the comparison with '{}' the index on collections can't be used.
_OWN_IN_COLLECTIONS = (
    "ARRAY[owner_id] @> ARRAY[%(owner)s::text] AND collections <> '{}' AND collections && %(collections)s::text[]"
)

MAX_SHARED_COUNTED = 2_001
"""The number of shared notes whose passages are counted: enough to know that the search needs the index."""

COUNT_SHARED_FOR_TURN = f"""
    SELECT coalesce(sum(chunks), 0) FROM (
        SELECT chunks FROM notes WHERE shared_with IN ('everyone', %(conversation)s) AND owner_id <> %(owner)s
          AND embedder = %(embedder)s LIMIT {MAX_SHARED_COUNTED}) AS shared"""
"""Count the passages that others share with a turn: a short scan of one index, and no row that many writers share."""

COUNT_SHARED_FOR_PERSON = COUNT_SHARED_FOR_TURN.replace(
    "shared_with IN ('everyone', %(conversation)s)", f"shared_with = ANY({_FOR_PERSON})"
)


def select_shared(scope: NoteScope, *, only: str = "") -> str:
    """Return a SELECT of (owner_id, id) of the notes that others share with the scope, in any collection.

    `only` limits it by a condition on the id, such as `AND id = %(id)s`.
    """
    audience = _FOR_PERSON if scope.conversation_id is None else _FOR_TURN
    return _SHARED.format(audience=audience, condition=only)


def select_visible(columns: str, scope: NoteScope, *, only: str = "", condition: str = "true") -> str:
    """Return a SELECT of the notes of the scope. `condition` holds for each of them; `only` is as above.

    It needs the parameters of `make_parameters`.
    """
    own, shared = "owner_id = %(owner)s", "true"
    if scope.collections:
        own, shared = _OWN_IN_COLLECTIONS, "collections && %(collections)s::text[]"
    return f"""
        SELECT {columns} FROM notes WHERE {own} AND {condition} {only}
        UNION ALL
        SELECT {columns} FROM ({select_shared(scope, only=only)}) AS shared JOIN notes USING (owner_id, id)
        WHERE {shared} AND {condition}"""


def make_parameters(scope: NoteScope) -> dict[str, Any]:
    """Return the parameters by which the statements of this module name a scope."""
    return {
        "owner": scope.owner_id,
        "conversation": scope.conversation_id,
        "collections": [name.lower() for name in scope.collections],
    }
