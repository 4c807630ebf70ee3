"""An embedder is one module and one entry in the registry, as docs/extending/an-embedder.md says."""

from __future__ import annotations

from pathlib import Path

import pytest

from rapport.domain.errors import Permanent
from rapport.retrieval.embedders.registry import EMBEDDERS, EmbedderEntry, make_embedder
from tests.retrieval import letters_embedder
from tests.retrieval.letters_embedder import make_letters
from tests.support.world import open_world

GUIDE = Path(__file__).parents[2] / "docs/extending/an-embedder.md"


async def test_a_new_embedder_finds_notes(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EMBEDDERS, "letters", EmbedderEntry(make_letters))
    async with open_world(database_url, embeddings="letters") as world:
        for text in ("The coffee machine is descaled every Monday.", "Parking costs nothing on Sundays."):
            response = await world.http.post("/api/notes", json={"text": text})
            assert response.status_code == 201, response.text
        response = await world.http.get("/api/notes/search", params={"q": "coffee machine descaled"})
        assert "every Monday" in response.json()["passages"][0]["text"]
        assert world.app.library.embedder.name == "letters-512"


def test_a_prefix_takes_a_model_or_takes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EMBEDDERS, "letters", EmbedderEntry(make_letters, takes_model=True))
    assert make_embedder("letters:pairs", environment={}).name == "letters-512"
    for name in ("letters", "letters:", "bundled:"):
        with pytest.raises(Permanent, match="is not an embedder"):
            make_embedder(name, environment={})


def test_the_guide_shows_the_embedder_that_runs_here() -> None:
    assert f"```python\n{Path(letters_embedder.__file__).read_text()}```" in GUIDE.read_text()
