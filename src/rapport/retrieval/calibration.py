"""Measure the threshold of the guard on an owner's notes (RAG-3).

Questions are made from a sample of the notes. A search in all notes gives the similarity of a passage that answers a question;
a search without the question's own note gives that of a passage that does not. General questions are added to the second kind.
The threshold is the similarity at which both kinds have the same error rate. Words do not count for it, because questions made
by rules repeat the words of the notes. The reported accuracy is that of the whole decision.
"""

from __future__ import annotations

import asyncio
import random
import re
import statistics
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from rapport.domain.embedder import Embedder
from rapport.domain.note import Chunk, Vector
from rapport.retrieval.relevance import Measure, Measured

Sampled: TypeAlias = tuple[str, str, Chunk, Vector]
"""A sampled sentence: note id, title, its passage, vector."""
Ask: TypeAlias = Callable[[str], Awaitable[str]]
"""A chat model: returns the answer to a prompt."""

MAX_PASSAGES = 2_000
MIN_NOTES = 5
"""With fewer notes there are too few others to compare with."""
QUESTIONS = 100
MAX_QUESTIONS_PER_PASSAGE = 3
"""The maximum number of questions made from one passage, when there are few passages."""
MIN_MODEL_QUESTIONS = 20
"""With fewer questions from the chat model than this, rules make them instead."""
MAX_FAILURES_IN_A_ROW = 5
"""Consecutive failures after which the chat model is not asked any more."""
SECONDS_TO_ASK = 30.0
DEFAULT_COUNTS = 20
"""The embedder's own threshold has the weight of this many questions, so that few questions change it little."""
LEAST, MOST = 0.02, 0.95
STEP = 0.01
CONFIDENT_FROM = 0.75
"""The balanced accuracy below which the two kinds overlap too much to trust any threshold."""

PROMPT = (
    "Below is a passage from somebody's notes. Write one question that a person could type into a chat and that this "
    "passage answers. Be short and natural, use other words than the passage where you can, and don't mention the "
    "passage. Reply with the question only.\n\n<passage>\n{passage}\n</passage>"
)


@dataclass(frozen=True, slots=True)
class Point:
    """The figures of the guard at one threshold, if half of the questions had an answer."""

    threshold: float
    precision: float
    """The share of the refused questions that had no answer."""
    recall: float
    """The share of the questions without an answer that are refused."""
    f1: float
    balanced_accuracy: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """The measured values, and the threshold that follows from them."""

    embedder: str
    positives: tuple[float, ...]
    """The relevance of the notes for each question that they answer."""
    negatives: tuple[float, ...]
    """Their relevance for each question that they do not answer."""
    curve: tuple[Point, ...]
    threshold: float
    default: float
    """The embedder's own threshold."""
    confident: bool
    """True if the threshold should be used; if not, `note` says why."""
    note: str


async def calibrate(
    passages: Sequence[Sampled], embedder: Embedder, measure: Measure, *, ask: Ask | None = None, seed: int = 7
) -> Calibration:
    """Return the threshold for these notes. It is deterministic for the same sample and the same answers of `ask`.

    Raise Transient when the embedder can't embed now. Rules replace a chat model that fails.
    """
    sample = passages[:MAX_PASSAGES]
    notes = len({note_id for note_id, *_ in sample})
    if notes < MIN_NOTES:
        return _make_unmeasured(embedder, f"There are too few notes to measure with: {notes}, of at least {MIN_NOTES}.")
    questions = await _questions(sample, random.Random(seed), ask)  # noqa: S311 - a sample, not a secret
    positives = [await measure(question, None) for _, question in questions]
    negatives = [await measure(question, note_id) for note_id, question in questions]
    negatives += [await measure(question, None) for question in GENERAL_QUESTIONS]
    return judge(embedder, positives, negatives)


def judge(embedder: Embedder, positives: Sequence[Measured], negatives: Sequence[Measured]) -> Calibration:
    """Return the calibration for the measured questions with and without an answer."""
    if not positives:
        return _make_unmeasured(embedder, "No question could be made from the notes: they have hardly any words.")
    # A question without an answer that is nearer than half of those with one probably has an answer too: in another
    # version of the note, or because the notes answer a general question. It would count as an error of the guard.
    similarities = [positive.similarity for positive in positives]
    usual = statistics.median(similarities)
    kept = [negative for negative in negatives if negative.similarity < usual]
    if not kept:
        return _make_unmeasured(embedder, "All notes say the same: a question finds its answer in any of them.")
    relevant_scores, irrelevant_scores = (
        tuple(measured_question.relevance for measured_question in kind) for kind in (positives, kept)
    )
    default = embedder.min_similarity
    measured = _find_threshold(similarities, [measured_question.similarity for measured_question in kept])
    share = len(positives) / (len(positives) + DEFAULT_COUNTS)
    threshold = round(min(max(share * measured + (1 - share) * default, LEAST), MOST), 3)
    accuracy = _point(threshold, np.array(relevant_scores), np.array(irrelevant_scores)).balanced_accuracy
    confident = accuracy >= CONFIDENT_FROM
    note = (
        f"{len(positives)} questions from the notes and {len(kept)} that they don't answer; "
        f"{measured:.3f} is where it errs as often on both, and with the embedder's own {default:.3f} blended in for "
        f"{1 - share:.0%} it's {threshold:.3f}: right for {accuracy:.0%} of both."
    )
    if put_aside := len(negatives) - len(kept):
        note += f" {put_aside} more were put aside because the notes may well answer them."
    if not confident:
        note += " That is too little to rely on: the two kinds are too much alike in these notes. The threshold stays."
    return Calibration(
        embedder.name,
        relevant_scores,
        irrelevant_scores,
        tuple(_curve(relevant_scores, irrelevant_scores)),
        threshold if confident else default,
        default,
        confident,
        note,
    )


def _make_unmeasured(embedder: Embedder, reason: str) -> Calibration:
    default = embedder.min_similarity
    return Calibration(embedder.name, (), (), (), default, default, False, f"{reason} The threshold stays.")


# ---- the threshold between the two kinds


def _find_threshold(positives: Sequence[float], negatives: Sequence[float]) -> float:
    """Return the threshold at which both kinds have the same error rate, so that precision and recall are equal.

    It is computed from normal distributions fitted to the two kinds: the threshold of the raw counts varies several times as
    much between samples.
    """
    low, high = statistics.median(negatives), statistics.median(positives)
    spread_low, spread_high = (max(statistics.pstdev(kind), STEP) for kind in (negatives, positives))
    return (low * spread_high + high * spread_low) / (spread_low + spread_high)


def _curve(positives: Sequence[float], negatives: Sequence[float]) -> Iterator[Point]:
    """Return the points from the threshold that refuses nothing to the one that refuses everything."""
    positive_values, negative_values = np.array(positives), np.array(negatives)
    all_values = np.concatenate([positive_values, negative_values])
    first, last = int(all_values.min() / STEP), int(all_values.max() / STEP) + 1
    return (_point(round(number * STEP, 4), positive_values, negative_values) for number in range(first, last + 1))


def _point(threshold: float, positives: NDArray[np.float64], negatives: NDArray[np.float64]) -> Point:
    refused_wrongly = float(np.mean(positives < threshold))
    refused_rightly = float(np.mean(negatives < threshold))
    refused = refused_rightly + refused_wrongly
    precision = refused_rightly / refused if refused else 1.0
    total = precision + refused_rightly
    f1 = 2 * precision * refused_rightly / total if total else 0.0
    return Point(threshold, precision, refused_rightly, f1, (refused_rightly + 1 - refused_wrongly) / 2)


# ---- questions that the notes answer

_WORD = re.compile(r"[^\W\d_][\w'’-]{2,}")
_SENTENCE = re.compile(r"(?<=[.!?:;])\s+|\n+")
_LITTLE_WORDS = (
    "the and for are was were has have had with without from that this these those there their they them then than "
    "what when where which who whom whose why how can could should would will shall may might must not don't isn't "
    "into onto over under about after before during between through also only other others another each every any "
    "all some such same more most less least very much many too its it's our your his her him she you your one two "
    "been being does did doing done get gets got make makes made take takes took put let see say says use uses used "
    "here out off per via if so as at by in of on or to up we us me my be is it an no do"
)
_SAYS_LITTLE = frozenset(_LITTLE_WORDS.split())
_FRAMES = (
    "{}",
    "{}?",
    "what about {}",
    "what is {}",
    "how does {} work",
    "how do I {}",
    "when is {}",
    "where do I find {}",
    "who does {}",
    "can I {}",
    "do you know about {}",
    "is there anything on {}",
)
"""Forms of questions about a few words. A copied sentence would be nearer than any real question."""
_WORDS_ASKED = (3, 4, 5)


async def _questions(passages: Sequence[Sampled], chance: random.Random, ask: Ask | None) -> list[tuple[str, str]]:
    """Return pairs of note id and question, from as many notes as possible."""
    sample = _spread(passages, chance)
    model_questions = await _ask_model_for_questions(sample, ask) if ask is not None else []
    if len(model_questions) >= min(MIN_MODEL_QUESTIONS, len(sample)):
        return model_questions
    common = Counter(word for _, title, chunk, _ in passages for word in set(_words(_whole(title, chunk))))
    repeated = (sample * MAX_QUESTIONS_PER_PASSAGE)[:QUESTIONS]
    questions = [(note_id, _make_question(title, chunk, common, chance)) for note_id, title, chunk, _ in repeated]
    return [(note_id, question) for note_id, question in questions if question]


def _spread(passages: Sequence[Sampled], chance: random.Random) -> list[Sampled]:
    """Return up to `QUESTIONS` passages: one of each note before a second one of any."""
    # A passage is in the sample once for each of its sentences.
    shuffled = list({(passage[0], passage[2].text): passage for passage in sorted(passages, key=_by_place)}.values())
    chance.shuffle(shuffled)
    seen: Counter[str] = Counter()
    turns: list[tuple[int, int]] = []
    for number, (note_id, *_) in enumerate(shuffled):
        turns.append((seen[note_id], number))
        seen[note_id] += 1
    return [shuffled[number] for _, number in sorted(turns)[:QUESTIONS]]


def _by_place(passage: Sampled) -> tuple[str, str]:
    return passage[0], passage[2].text


def _make_question(title: str, chunk: Chunk, common: Counter[str], chance: random.Random) -> str:
    """Return a question with a few rare words of one sentence, often with a word of its heading; "" if there are none."""
    sentences = [words for part in _SENTENCE.split(chunk.text) if len(words := _words(part)) >= 3]
    words = list(dict.fromkeys(chance.choice(sentences) if sentences else _words(chunk.text)))
    word_count = chance.choice(_WORDS_ASKED)
    # Mostly rare words, but not always the rarest: people do not ask with those.
    words.sort(key=lambda word: common[word] + 2 * chance.random())
    words = words[: word_count + 1]
    chance.shuffle(words)
    topic = _words(chunk.heading or title)
    if topic and chance.random() < 0.5:
        words = [chance.choice(topic), *words[: word_count - 1]]
    return chance.choice(_FRAMES).format(" ".join(words[:word_count])) if words else ""


def _words(text: str) -> list[str]:
    return [word for word in map(str.lower, _WORD.findall(text)) if word not in _SAYS_LITTLE]


def _whole(title: str, chunk: Chunk) -> str:
    return f"{title} {chunk.heading} {chunk.text}"


async def _ask_model_for_questions(sample: Sequence[Sampled], ask: Ask) -> list[tuple[str, str]]:
    """Return questions of the chat model, one for each passage; passages with a failure are skipped."""
    questions: list[tuple[str, str]] = []
    failures = 0
    for note_id, title, chunk, _ in sample:
        if failures == MAX_FAILURES_IN_A_ROW:
            break
        try:
            async with asyncio.timeout(SECONDS_TO_ASK):
                reply = await ask(PROMPT.format(passage=f"{title}\n{chunk.heading}\n{chunk.text}"))
        except Exception:  # noqa: BLE001 - whatever ails the model, rules make questions too
            failures += 1
            continue
        failures = 0
        if question := _only_the_question(reply):
            questions.append((note_id, question))
    return questions


def _only_the_question(reply: str) -> str:
    """Return the reply's last line with 2 to 40 words, without quotes and numbering; "" if there is none."""
    lines = [line.strip().strip("\"'“”*`").lstrip("-0123456789.) ") for line in reply.splitlines()]
    candidates = [line for line in lines if 2 <= len(line.split()) <= 40]
    return candidates[-1] if candidates else ""


_GENERAL = """
Why is the sky blue? / How many continents are there? / what is the boiling point of ethanol
Who invented the telephone? / how old is the universe / What language do they speak in Ethiopia? / tell me a riddle
Can you sing me a song? / How do airplanes stay in the air? / what is the meaning of life
Who was the first woman in space? / recommend a novel for the beach / how do magnets work
What is the largest desert on earth? / when did the Titanic sink / Write a haiku about autumn
what is inflation in economics / How far away is the moon? / who composed the four seasons
What is the difference between alligators and crocodiles? / how do you play rummy
Which countries border Switzerland? / How do I solve a quadratic equation? / what does a semicolon do
Why do leaves change colour? / What is the currency of Thailand? / how long does it take to fly to New York
Who was Cleopatra? / what is machine learning / How can I fall asleep faster? / what is the population of Canada
Give me a pun about bread / How deep is the ocean? / who directed the film Jaws / What are the rules of badminton?
how do I start a blog / What is a black hole? / Which dog breeds don't shed? / how do I draw a horse
What happened in the French revolution? / good ideas for a first date / how do I write a will
What does DNA stand for? / Should I buy or rent a flat? / how does a blockchain work
What is the best time to visit Iceland? / how do I train for a marathon / what are the symptoms of anaemia
Who holds the record in the 100 metre sprint? / How do I fold a paper crane? / what is a mortgage
Which instruments are in a string quartet? / How do I take good photographs at night?
what sports are in the winter olympics / Is coffee bad for you? / how do earthquakes happen / What was the Silk Road?
How do I negotiate a higher salary? / what is a good opening move in chess
How do I remove a scratch from a car door? / what to cook with leftover rice / How do I make pizza dough?
what wine goes with duck / How long do you boil an egg? / Can I substitute butter with oil in a cake?
how do I fillet a trout / What can I plant in a shady corner? / how do I keep deer out of my garden
When do swallows fly south? / How do I repot an orchid? / what kind of spider is this
How do I teach my parrot to talk? / my hamster won't eat / What vaccinations does a puppy need?
how do I fix a dripping tap / How do I hang a heavy mirror? / which drill bit for concrete
How do I insulate an attic? / what is the best glue for leather / How do I sharpen a kitchen knife?
how do I fix a bicycle puncture / What does the engine warning light mean? / how do I jump-start a car
Do I need snow chains in Austria? / how do I get a driving licence / When does the next train to Prague leave?
Is there a direct flight to Oslo? / what should I pack for a safari / Where can I exchange money?
how do I get a visa for India / What are the sights of Rome? / Are there good beaches in Albania?
how do I file my taxes / What is a good credit score? / how do I open a bank account / How do I found a company?
what is the minimum wage / How do I write a good CV? / what questions are asked in a job interview
How do I deal with a difficult boss? / what is the deadline for the university application
How do I get a scholarship? / Which subjects do I need to study medicine? / how do I learn vocabulary quickly
What is the homework for Thursday? / my computer is very slow / How do I take a screenshot on a Mac?
how do I delete my Instagram account / What is the newest iPhone? / How do I merge two PDF files?
how do I centre a div in CSS / What does error 404 mean? / How do I write a for loop in Bash?
which smart watch should I buy / How do I recover deleted photos? / what is a good alternative to Photoshop
How do I treat a sunburn? / what helps against hiccups / How many hours of sleep does a teenager need?
Which vitamin is in carrots? / how do I stop biting my nails / My back hurts after sitting all day
What is the address of the nearest embassy? / When is mother's day this year? / how do I knit a scarf
What should I wear to a funeral? / Who is playing in the concert hall tonight? / how do I plan a wedding
How do I forgive a friend? / what film should we watch tonight
"""
GENERAL_QUESTIONS = tuple(question.strip() for line in _GENERAL.strip().splitlines() for question in line.split(" / "))
"""General questions, which few notes answer. One that they answer is not counted."""
