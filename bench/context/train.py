# pyright: basic, reportMissingImports=false
"""Train the scorer of `context/relevance` and write its weights: `make train-context` (PyTorch, in a separate environment).

Both rounds are trained together, end to end: on which earlier line each line answers (cross entropy over all of them and
"none"), and on which lines are in one thread, derived from it (BCE, and 1 - soft F1 of each line's thread, which is
the scorer's purpose). The result is the running mean of the weights. The same seed gives the same weights on the same
machine and versions.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import random
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.context.inputs import TRAINING_FILE, require_files
from bench.context.windows import SIZES, Window, Windows, read
from rapport.context.relevance.line_features import strip_handles
from rapport.context.relevance.pair_features import (
    CHAT_FEATURES,
    FEATURES,
    LINE_FEATURES,
    PAIR_FEATURES,
    compute_features,
    list_pairs,
)
from rapport.context.relevance.scorer import LOOKBACKS, MIN_LINK_PROBABILITY
from rapport.retrieval.embedders.wordllama import DIMENSIONS, open_word_table

WEIGHTS = Path(__file__).parents[2] / "src" / "rapport" / "context" / "relevance" / "weights.json"
SPREAD = (
    "same_author", "own_last", "addresses", "addressed_by", "called_last", "names", "shared_rare", "cosine", "vector_cosine",
    "distance_1", "distance_2", "replies", "same_addressee", "exchange_last",
)  # fmt: skip
"""The features that the second round carries over from a message to its whole thread."""
HEADS, HEAD_SIZE = 4, 8
WITHOUT_VECTORS = 0.08
"""The share of windows without word vectors: some installations have none."""
WITHOUT_MEANING = 0.35
"""The share of windows with only the similarities of vectors and not the vectors: those depend on the channel's subjects."""


class Together(torch.autograd.Function):
    """The probability that two lines are in one thread, from the probabilities of who answers whom (see scorer._together)."""

    @staticmethod
    def forward(ctx: Any, links: torch.Tensor) -> torch.Tensor:
        count = links.shape[1]
        together = torch.eye(count).repeat(len(links), 1, 1)
        for line in range(1, count):
            row = torch.bmm(links[:, line : line + 1, :line], together[:, :line, :line]).squeeze(1)
            together[:, line, :line] = row
            together[:, :line, line] = row
        ctx.save_for_backward(links, together)
        return together

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        links, together = ctx.saved_tensors
        left = grads[0] + grads[0].transpose(1, 2)
        out = torch.zeros_like(links)
        for line in range(links.shape[1] - 1, 0, -1):
            row = left[:, line, :line]
            out[:, line, :line] = torch.bmm(together[:, :line, :line], row.unsqueeze(2)).squeeze(2)
            through = links[:, line, :line].unsqueeze(2) * row.unsqueeze(1)
            left[:, :line, :line] += through + through.transpose(1, 2)
        return out


class Round(torch.nn.Module):
    """One round: from the features of a pair to the strength of its link."""

    def __init__(self, hidden: int, directions: int, seen: int) -> None:
        super().__init__()
        self.known = torch.nn.Linear(len(FEATURES), hidden)
        self.later = torch.nn.Linear(directions, hidden, bias=False)
        self.earlier = torch.nn.Linear(directions, hidden, bias=False)
        self.heads = torch.nn.Linear(HEADS, hidden, bias=False)
        self.seen = torch.nn.Linear(seen, hidden, bias=False) if seen else None
        self.hidden = torch.nn.Linear(hidden, hidden // 2)
        self.out = torch.nn.Linear(hidden // 2, 1)

    def forward(
        self, known: torch.Tensor, meaning: tuple[torch.Tensor, ...], seen: torch.Tensor | None
    ) -> torch.Tensor:
        later, earlier, fitting = meaning
        hidden = self.known(known) + self.later(later) + self.earlier(earlier) + self.heads(fitting)
        if self.seen is not None and seen is not None:
            hidden = hidden + self.seen(seen)
        return self.out(torch.relu(self.hidden(torch.relu(hidden)))).squeeze(-1)


class Scorer(torch.nn.Module):
    def __init__(self, hidden: int, directions: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(len(FEATURES)))
        self.register_buffer("spread", torch.ones(len(FEATURES)))
        self.meaning = torch.nn.Linear(DIMENSIONS, directions, bias=False)
        self.asks = torch.nn.Linear(directions, HEADS * HEAD_SIZE, bias=False)
        self.tells = torch.nn.Linear(directions, HEADS * HEAD_SIZE, bias=False)
        self.drop = torch.nn.Dropout(0.3)
        self.first = Round(hidden, directions, 0)
        self.second = Round(hidden, directions, len(SPREAD) + len(LOOKBACKS) + 2)

    def forward(
        self, table: torch.Tensor, vectors: torch.Tensor, count: int
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return, for each round, the log probabilities of which line each line answers, and of being in one thread."""
        every = list_pairs(count)
        later, earlier = torch.as_tensor(every.later), torch.as_tensor(every.earlier)
        apart = (later != earlier).float()[None, :, None]
        below = torch.tril(torch.ones(count, count), -1)

        def square(values: torch.Tensor, empty: float = 0.0) -> torch.Tensor:
            out = table.new_full((len(table), count, count), empty)
            out[:, later, earlier] = values
            return out

        known = (table - self.mean) / self.spread
        lines = self.drop(self.meaning(vectors))
        asks = self.asks(lines).view(len(lines), count, HEADS, HEAD_SIZE)
        tells = self.tells(lines).view(len(lines), count, HEADS, HEAD_SIZE)
        fitting = torch.einsum("bihd,bjhd->bhij", asks, tells) / HEAD_SIZE**0.5
        meaning = (lines[:, later], lines[:, earlier] * apart, fitting[:, :, later, earlier].permute(0, 2, 1) * apart)
        first = torch.log_softmax(square(self.first(known, meaning, None), -1e9), 2)
        together = Together.apply(first.exp() * below)
        seen = self._second_look(table, together, square, below, count)[:, :, later, earlier].permute(0, 2, 1) * apart
        scores = self.second(known, meaning, seen) + first[:, later, earlier].clamp(min=math.log(MIN_LINK_PROBABILITY))
        second = torch.log_softmax(square(scores, -1e9), 2)
        return [(first, together), (second, Together.apply(second.exp() * below))]

    @staticmethod
    def _second_look(
        table: torch.Tensor, together: torch.Tensor, square: Any, below: torch.Tensor, count: int
    ) -> torch.Tensor:
        steps = torch.arange(count)[:, None] - torch.arange(count)[None, :]
        near = torch.stack([((steps >= 1) & (steps <= reach)).float() for reach in LOOKBACKS])
        carried = [square(table[:, :, PAIR_FEATURES.index(name)]) * below for name in SPREAD]
        dense = torch.cat([torch.stack(carried, 1), near.expand(len(table), len(LOOKBACKS), count, count)], 1)
        earlier = together * below
        since = torch.cumsum(earlier, 1) - earlier
        counted = torch.cat([torch.matmul(dense, together.unsqueeze(1)), since.unsqueeze(1)], 1)
        return torch.cat([torch.log1p(counted.clamp(min=0)), earlier.unsqueeze(1)], 1)


# ---- windows, drawn in a separate process

_drawing: tuple[Windows, Any] | None = None


def _begin(path: Path) -> None:
    global _drawing
    _drawing = (Windows(read(path)), open_word_table())


def _batch(order: tuple[int, int]) -> list[tuple[Window, np.ndarray, np.ndarray]]:
    """Return windows of one size with their features."""
    seed, count = order
    assert _drawing is not None
    windows, words = _drawing
    chance = random.Random(seed)
    size = chance.choice(SIZES)
    drawn: list[tuple[Window, np.ndarray, np.ndarray]] = []
    while len(drawn) < count * (1 if size >= 60 else 2 if size >= 20 else 4):
        if (window := windows.draw(size, chance)) is None:
            continue
        vectors = words([strip_handles(line.text) for line in window.lines])
        if chance.random() < WITHOUT_VECTORS:
            drawn.append((window, compute_features(window.lines).table.astype(np.float16), np.zeros_like(vectors)))
        else:
            table = compute_features(window.lines, vectors).table.astype(np.float16)
            is_known = chance.random() >= WITHOUT_MEANING
            drawn.append((window, table, vectors if is_known else np.zeros_like(vectors)))
    return drawn


def _grouped(batch: Iterable[tuple[Window, np.ndarray, np.ndarray]]) -> Iterator[tuple[torch.Tensor, ...]]:
    """Return the windows of each length as tensors: features, vectors, answers, together."""
    lengths: dict[int, list[tuple[Window, np.ndarray, np.ndarray]]] = {}
    for one in batch:
        lengths.setdefault(len(one[0].lines), []).append(one)
    for count, some in lengths.items():
        answers = torch.zeros(len(some), count, count)
        for number, (window, _, _) in enumerate(some):
            for line, answered in enumerate(window.answers):
                answers[number, line, list(answered) or [line]] = 1
        yield (
            torch.from_numpy(np.stack([table for _, table, _ in some]).astype(np.float32)).transpose(1, 2),
            torch.from_numpy(np.stack([vectors for _, _, vectors in some])),
            answers,
            torch.from_numpy(np.stack([window.together for window, _, _ in some]).astype(np.float32)),
        )


def _loss(found: list[tuple[torch.Tensor, torch.Tensor]], answers: torch.Tensor, gold: torch.Tensor) -> torch.Tensor:
    count = gold.shape[1]
    below = torch.tril(torch.ones(count, count), -1)
    gold = gold * below
    size = gold.sum(2)
    total = torch.zeros(())
    for weight, (links, together) in zip((0.5, 1.0), found, strict=True):
        total = total - weight * torch.logsumexp(links.masked_fill(answers == 0, -1e9), 2).mean()
        guess = together * below
        overlap = 2 * (guess * gold).sum(2) / (guess.sum(2) + size + 1e-6)
        counted = (size >= 2).float()
        total = total + weight * (1 - (overlap * counted).sum() / (counted.sum() + 1e-6))
        wrong = torch.nn.functional.binary_cross_entropy(guess.clamp(1e-5, 1 - 1e-5), gold, reduction="none")
        alike = below / (size.unsqueeze(2) + 3)  # every line's thread has the same weight, as in macro F1
        total = total + weight * (wrong * alike).sum() / alike.sum()
    return total


def train(data: Path, *, steps: int, batch: int, hidden: int, directions: int, rate: float, seed: int) -> Scorer:
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    scorer = Scorer(hidden, directions)
    _begin(data)
    sample = np.concatenate([table for number in range(20) for _, table, _ in _batch((-number - 1, 4))], 1)
    sample = sample.astype(np.float32)
    scorer.mean = torch.from_numpy(sample.mean(1))
    scorer.spread = torch.from_numpy(np.maximum(sample.std(1), 0.05))
    chosen = [(name, value) for name, value in scorer.named_parameters()]
    mean = {name: value.detach().clone() for name, value in chosen}
    optimizer = torch.optim.AdamW(scorer.parameters(), lr=rate, weight_decay=1e-2)
    began, told = time.monotonic(), 0.0
    with multiprocessing.get_context("spawn").Pool(1, _begin, (data,)) as drawing:
        orders = ((seed * 10**6 + step, batch) for step in range(steps))
        for step, drawn in enumerate(drawing.imap(_batch, orders), 1):
            for group in optimizer.param_groups:
                group["lr"] = rate * min(1.0, step / 100) * (0.49 * (1 + math.cos(math.pi * step / steps)) + 0.02)
            optimizer.zero_grad()
            for known, vectors, answers, gold in _grouped(drawn):
                loss = _loss(scorer(known, vectors, gold.shape[1]), answers, gold) * len(gold) / len(drawn)
                loss.backward()
                told += float(loss.detach())
            torch.nn.utils.clip_grad_norm_(scorer.parameters(), 1.0)
            optimizer.step()
            keep = min(0.998, (1 + step) / (10 + step))
            with torch.no_grad():
                for name, value in chosen:
                    mean[name].mul_(keep).add_(value, alpha=1 - keep)
            if step % 100 == 0:
                print(f"{step:6d} of {steps}  {time.monotonic() - began:6.0f} s  loss {told / 100:.4f}", flush=True)
                told = 0.0
    with torch.no_grad():
        for name, value in chosen:
            value.copy_(mean[name])
    return scorer


# ---- writing the weights


def _numbers(tensor: Any) -> Any:
    values = np.asarray(tensor, np.float64)
    return [float(f"{one:.4g}") for one in values] if values.ndim == 1 else [_numbers(row) for row in values]


def _round(part: Round, scorer: Scorer) -> dict[str, Any]:
    """Return a round's weights for unscaled features; training uses scaled ones."""
    weight = part.known.weight.detach() / scorer.spread
    bias = part.known.bias.detach() - weight @ scorer.mean
    sizes = [len(PAIR_FEATURES), len(LINE_FEATURES), len(LINE_FEATURES), len(CHAT_FEATURES), 1]
    pair, later, earlier, chat, none = torch.split(weight, sizes, 1)
    seen = part.seen.weight if part.seen is not None else torch.zeros(len(weight), 0)
    named = {
        "pair": pair, "later": later, "earlier": earlier, "chat": chat, "none": none[:, 0],
        "later_meaning": part.later.weight, "earlier_meaning": part.earlier.weight, "heads": part.heads.weight,
        "seen": seen, "bias": bias, "hidden": part.hidden.weight, "hidden_bias": part.hidden.bias, "out": part.out.weight[0],
    }  # fmt: skip
    return {
        **{name: _numbers(value.detach()) for name, value in named.items()},
        "out_bias": float(part.out.bias[0].detach()),
    }


def _written(value: Any, indent: int = 0) -> str:
    """Return readable JSON: a line for each row of a matrix."""
    margin = " " * indent
    if isinstance(value, dict):
        rows = [f"{margin} {json.dumps(name)}: {_written(one, indent + 1)}" for name, one in value.items()]
        return "{\n" + ",\n".join(rows) + f"\n{margin}}}"
    if isinstance(value, list) and value and isinstance(value[0], list):
        rows = [f"{margin} {json.dumps(row, separators=(',', ':'))}" for row in value]
        return "[\n" + ",\n".join(rows) + f"\n{margin}]"
    return json.dumps(value, separators=(",", ":"))


def write(scorer: Scorer, path: Path) -> None:
    weights = {
        "features": list(FEATURES),
        "spread": list(SPREAD),
        "heads": HEADS,
        "meaning": _numbers(scorer.meaning.weight.detach()),
        "asks": _numbers(scorer.asks.weight.detach()),
        "tells": _numbers(scorer.tells.weight.detach()),
        "first": _round(scorer.first, scorer),
        "second": _round(scorer.second, scorer),
    }
    path.write_text(_written(weights) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=TRAINING_FILE)
    parser.add_argument("--weights", type=Path, default=WEIGHTS)
    parser.add_argument("--steps", type=int, default=3_500)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=48)
    parser.add_argument("--directions", type=int, default=16)
    parser.add_argument("--rate", type=float, default=4e-3)
    parser.add_argument("--seed", type=int, default=5)
    given = parser.parse_args()
    require_files(given.data)
    scorer = train(
        given.data,
        steps=given.steps,
        batch=given.batch,
        hidden=given.hidden,
        directions=given.directions,
        rate=given.rate,
        seed=given.seed,
    )
    write(scorer, given.weights)
    print(f"wrote {given.weights}")


if __name__ == "__main__":
    main()
