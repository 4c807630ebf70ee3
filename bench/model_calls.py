"""Count the model calls of a conversation, and how much of each prompt a prompt cache can use.

`python -m bench.model_calls` starts `rapport serve` with its embedded Postgres and a scripted model on loopback that calls tools:
it always answers with text, saves a fact in some answers and plans a follow-up in others. A person has a direct conversation of 40
turns with it over HTTP; `--pause` is the silence after each answer. It prints the calls per turn by purpose, and the share of each
turn's prompt (the characters of its messages, in order) that is the beginning of the previous turn's prompt too. It exits with 0
when the targets are met. All traffic stays on this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import os
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson
from tests.e2e.scripted import Answer, Call, ScriptedModel, Uses, plans, remembers, scripted_model

from bench.targets import Ours

CALLS_GOAL, SHARE_GOAL = 1.15, 0.80
FIRST_TURN = 8
"""The first turn whose prompt is compared: the goal is for conversations that have a history."""


@dataclass(frozen=True)
class Line:
    """What the person says, and what the model asks for beside its answer."""

    text: str
    fact: str = ""
    matter: str = ""


TALK = (
    Line("Hi! My name is Marta, I just moved to Porto for a new job.", fact="The user's name is Marta."),
    Line("The flat is nice, but the heating makes a terrible noise at night and I can't sleep."),
    Line("I have to call the landlord about the heating tomorrow.", matter="call the landlord about the heating"),
    Line("He is friendly, but he never answers his phone before noon."),
    Line("What should I say so that he takes it seriously?"),
    Line("Good idea, I will mention the nights when I was awake."),
    Line("By the way, do you know something I could cook for six people on Saturday?"),
    Line("Two of them don't eat meat, and I'm allergic to peanuts.", fact="The user is allergic to peanuts."),
    Line("A lasagne sounds good. Can I prepare it the day before?"),
    Line("And how long does it need in the oven when it comes from the fridge?"),
    Line("I only have a small oven, maybe I should make two smaller ones."),
    Line("What about a dessert that nobody has to wait for?"),
    Line("I can't decide between a chocolate mousse and a lemon cake.", matter="chocolate mousse or lemon cake"),
    Line("My sister would vote for chocolate, she is coming too."),
    Line("She arrives on Friday evening by train from Lisbon."),
    Line("Do you think three hours are enough to tidy up after work and fetch her?"),
    Line("The station is twenty minutes away by tram."),
    Line("Work is fine so far, my team builds software for hospitals.", fact="The user builds software for hospitals."),
    Line("My manager wants me to give a talk in two weeks and I am quite nervous."),
    Line("It is about how we test our software, nothing difficult."),
    Line("I have to write an outline for the talk by Monday.", matter="write an outline for the talk"),
    Line("Usually I start with a story, but here I have no good one."),
    Line("Once we found a wrong unit in a table an hour before the release. Would that work?"),
    Line("Nobody was harmed, but it was close, and since then two people check each table."),
    Line("Then I would show how a check by a machine finds the same mistake in a second."),
    Line("How many slides are enough for twenty minutes?"),
    Line("I prefer pictures to text on slides.", fact="The user prefers pictures to text on slides."),
    Line("My last talk had far too much text, people read instead of listening."),
    Line("Back to Saturday: what could we do after the meal if it rains?"),
    Line("We played cards last time and it was fun, but not with six people."),
    Line("A quiz about Portugal could be nice, three of us are new here."),
    Line("Can you give me three questions that are not too easy?"),
    Line("The second one is great, I would not have known the answer."),
    Line("Maybe I should also learn a bit more Portuguese, I only understand half of what people say."),
    Line("I want to start an evening course in January.", fact="The user wants to start an evening course in January."),
    Line("There is one near my office and one online, the online course is cheaper."),
    Line("I need to choose the course before Christmas.", matter="choose the course before Christmas"),
    Line("In a class I learn more, but after work I am often tired."),
    Line("You are right, twice a week at home would end after a month."),
    Line("Thanks, that helped a lot. I will think about it and tell you on Sunday how everything went."),
)
SENTENCES = (
    "That sounds like a lot at once, and I think you are going about it the right way.",
    "I would keep it short and concrete: say what happened, since when, and what you need from them.",
    "If you prepare most of it the evening before, the day itself becomes much calmer.",
    "Give it about fifty minutes and cover it for the first half, then it stays soft inside.",
    "People remember one good example far longer than ten rules, so begin with that.",
    "Leave yourself an hour more than you expect to need, because something always comes up.",
    "Both would work well here, and neither takes much more effort than the other.",
)


def write_answer(turn: int, line: Line) -> Answer:
    """Return the model's answer: two or three sentences, and the calls beside them."""
    text = " ".join(SENTENCES[(turn * 3 + number) % len(SENTENCES)] for number in range(2 + turn % 2))
    calls = [*remembers(line.fact).calls] if line.fact else []
    if line.matter:
        calls.append(plans(line.matter))
    return Uses(calls, text) if calls else text


async def converse(folder: Path, model: ScriptedModel, pause_seconds: float) -> list[Call]:
    """Have the conversation; return the model's calls, in order. The last summary is waited for."""
    target = Ours("ours", folder / "ours", model.url, set())
    with contextlib.ExitStack() as stack:
        stack.callback(target.stop)
        await target.start()
        thread = await target.create()
        for turn, line in enumerate(TALK):
            model.answers.append(write_answer(turn, line))
            path = f"/chat/conversations/{thread}/messages"
            reply = await target.client.json("POST", path, {"content": line.text})
            if reply["fallbackUsed"] or model.answers:
                raise RuntimeError(f"turn {turn + 1} was not answered by the model: {reply}")
            await asyncio.sleep(pause_seconds)
        await asyncio.sleep(1)
    return sorted([*model.calls, *model.reflections], key=lambda call: call.began)


def count_purposes(calls: Sequence[Call]) -> Counter[str]:
    """Count the calls by purpose. An answer is the first call about a message; every further one is another purpose."""
    counts: Counter[str] = Counter()
    said = {line.text for line in TALK}
    answered: set[str] = set()
    for call in calls:
        purpose = "summary" if call.is_summary else "other"
        if purpose == "other" and call.text in said - answered:
            answered.add(call.text)
            purpose = "answer"
        counts[purpose] += 1
    return counts


def render_prompt(call: Call) -> str:
    """Return the messages of the request, in order, as one text."""
    messages: list[dict[str, object]] = orjson.loads(call.body)["messages"]
    return "\n".join(f"{message['role']}: {message['content']}" for message in messages)


@dataclass(frozen=True)
class Prompt:
    """The sizes of a turn's prompt, in characters."""

    total: int
    common: int
    """The beginning that is the same as in the previous turn."""
    instructions: int

    @property
    def share(self) -> float:
        return self.common / self.total


def compare_prompts(calls: Sequence[Call]) -> list[Prompt]:
    """Return the prompt of each turn from the second, compared with that of the turn before."""
    prompts = [render_prompt(call) for call in calls if not call.is_summary]
    return [
        Prompt(len(now), _count_common(before, now), now.index("\nuser: "))
        for before, now in itertools.pairwise(prompts)
    ]


def _count_common(one: str, other: str) -> int:
    """Return how many characters both texts begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(one), len(other)))


def report(calls: Sequence[Call]) -> bool:
    """Print the figures; return whether all targets are met."""
    counts = count_purposes(calls)
    per_turn = len(calls) / len(TALK)
    prompts = compare_prompts(calls)[FIRST_TURN - 2 :]
    shares = [prompt.share for prompt in prompts]
    median, worst = statistics.median(shares), min(shares)
    low = [number for number, share in enumerate(shares, FIRST_TURN) if share < SHARE_GOAL]
    lowest = min(prompts, key=lambda prompt: prompt.share)
    overall = sum(prompt.common for prompt in prompts) / sum(prompt.total for prompt in prompts)
    shown = ", ".join(f"{purpose} {counts[purpose] / len(TALK):.3f}" for purpose in ("answer", "summary", "other"))
    print(f"{len(calls)} calls in {len(TALK)} turns; per turn: {shown}")
    print(f"the same beginning as the turn before: turns below {SHARE_GOAL:.0%}: {low or 'none'}")
    print(f"  of all characters of these prompts: {overall:.1%}")
    print(f"  the lowest: {lowest.common} of {lowest.total} characters; its instructions have {lowest.instructions}")
    goals = [
        (f"at most {CALLS_GOAL} calls per turn", per_turn <= CALLS_GOAL, f"{per_turn:.3f}"),
        (f"at least {SHARE_GOAL:.0%} of a prompt is the same, median", median >= SHARE_GOAL, f"{median:.1%}"),
        (f"at least {SHARE_GOAL:.0%} of a prompt is the same, worst", worst >= SHARE_GOAL, f"{worst:.1%}"),
    ]
    for label, met, figure in goals:
        print(f"  {'met   ' if met else 'MISSED'}  {label}: {figure}")
    return all(met for _, met, _ in goals)


async def run(folder: Path, pause_seconds: float) -> list[Call]:
    async with scripted_model() as model:
        return await converse(folder, model, pause_seconds)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.model_calls", description=__doc__)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds of silence after each answer")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="rapport-bench-", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)
        calls = asyncio.run(run(Path(folder), chosen.pause))
    return 0 if report(calls) else 1


if __name__ == "__main__":
    sys.exit(main())
