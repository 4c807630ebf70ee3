"""Extract by rules what users plainly say about themselves: rather nothing than something wrong (MEM)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rapport.domain.conversation import Message
from rapport.domain.memory import MemoryCandidate
from rapport.domain.patterns import Pattern, compile_linear
from rapport.domain.phrases import expand, load_languages, load_words
from rapport.domain.synthetic import is_synthetic
from rapport.memory.statements import DATA, Statement, split_statements

MAX_FACTS = 5
MAX_CHARACTERS = 300
_FEWEST_WORDS = 3
_AGES = range(4, 111)
_ENGLISH = load_languages(DATA)["en"]
_FORBIDDEN = load_words(DATA, "forbidden")
_VAGUE = load_words(DATA, "vague")
_NOT_NAMES = load_words(DATA, "not_names")
_NOT_PLACES = load_words(DATA, "not_places")
_NOT_ALLERGIES = load_words(DATA, "not_allergies")
_OF_ONE = load_words(DATA, "of_one")
"""Of these relatives a person has one at a time, so a newer one takes the older one's place."""
_THEIRS: dict[str, str] = _ENGLISH["theirs"]
_TASTES: dict[str, str] = _ENGLISH["tastes"]
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_SEVERAL = re.compile(r" (?:and|or|than|over|to) |[,&+]")
_MARKUP = frozenset("<>{}[]`|\\")
_MOST_THING_WORDS = 9


@dataclass(frozen=True, slots=True)
class Fact:
    """One lasting thing about a person, as a sentence that stands alone."""

    content: str
    key: str | None = None


@dataclass(frozen=True, slots=True)
class _Rule:
    """A clause as a whole, the sentence that is kept of it, and the key of what a person has one of."""

    pattern: Pattern
    says: str
    key: str | None


def _load_rules() -> tuple[Pattern, tuple[_Rule, ...]]:
    """Return a pattern that any rule's clause matches, and the rules."""
    found: list[_Rule] = []
    written: list[str] = []
    for language in load_languages(DATA).values():
        captures = {name: _capture(text, language) for name, text in language.get("captures", {}).items()}
        for rule in language.get("rules", ()):
            for when in rule["when"]:
                plain = expand(when, language.get("parts", {}))
                written.append(expand(plain, captures))
                found.append(_Rule(_compile(_with_groups(plain, captures)), rule["says"], rule.get("key")))
    return _compile("|".join(written)), tuple(found)


def _compile(pattern: str) -> Pattern:
    return compile_linear(pattern, ignore_case=True, is_ascii=True)


def _capture(text: str, language: Mapping[str, Any]) -> str:
    """Return what a capture stands for; `@list` is any of a list's words."""
    if not text.startswith("@"):
        return text
    words = [word.replace("_", " ") for word in language[text[1:]].split()]
    return "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))


def _with_groups(plain: str, captures: Mapping[str, str]) -> str:
    return re.sub(r"<(\w+)>", lambda found: f"(?P<{found[1]}>{expand(captures[found[1]], captures)})", plain)


_ANY_RULE, _RULES = _load_rules()


def extract_facts(message: Message) -> list[MemoryCandidate]:
    """At most five lasting facts that the writer of a real user message states about themselves, each a sentence.

    Nothing is taken from what the system or the agent wrote, from quotations, questions, conditions, hearsay, passing
    states, secrets, or anything that a model might read as an instruction.
    """
    if message.role != "user" or is_synthetic(message):
        return []
    found: dict[str, Fact] = {}
    for statement in split_statements(message.text):
        for fact in _facts_in(statement):
            if _is_harmless(fact.content):
                # Said twice in one message, the later one counts, as between messages.
                found[fact.key or fact.content.lower()] = fact
    origin = MemoryCandidate("", conversation_id=message.conversation_id, message_id=message.id)
    return [replace(origin, content=fact.content, key=fact.key) for fact in list(found.values())[:MAX_FACTS]]


def _facts_in(statement: Statement) -> Iterator[Fact]:
    """Yield the facts of a statement: of the longest part of it that is one, and of the rest with the same subject."""
    parts = statement.parts
    begin, has_found = 0, False
    while begin < len(parts):
        for end in range(len(parts), begin, -1):
            if fact := _by_rule(statement.join(begin, end)):
                yield fact
                has_found = True
                begin = end - 1
                break
        begin += 1
    if statement.is_asked_for and not has_found and (fact := _as_asked(statement.text)):
        yield fact


def _by_rule(text: str) -> Fact | None:
    if not _ANY_RULE.fullmatch(text):
        return None
    for rule in _RULES:
        if (match := rule.pattern.fullmatch(text)) and (fact := _fact(rule, {**match.groupdict(), "said": text})):
            return fact
    return None


def _fact(rule: _Rule, found: Mapping[str, str | None]) -> Fact | None:
    cleaned = {name: _clean(name, (text or "").strip(" .'\""), rule) for name, text in found.items()}
    if any(text is None for text in cleaned.values()):
        return None
    spaced = {name: f"{text} " if name in {"kind", "of"} and text else text for name, text in cleaned.items()}
    spaced |= {"at": f" {spaced['at']}"} if spaced.get("at") else {}
    content = re.sub(r"\ba (?=[aeiouAEIOU])", "an ", " ".join(rule.says.format_map(spaced).split()))
    key = rule.key.format_map({name: (text or "").lower() for name, text in cleaned.items()}) if rule.key else None
    if rule.key == "{relative}":
        key = key if key in _OF_ONE else None
    return Fact(content, None if key is None or _SEVERAL.search(key) else key)


def _clean(name: str, text: str, rule: _Rule) -> str | None:
    """Return what was found as somebody else says it; None if it is not what it looks like."""
    spoken = {word.lower() for word in text.split()}
    if name.endswith("name"):
        return None if spoken & _NOT_NAMES or text.endswith("ing") else text[:1].upper() + text[1:]
    if name == "place":
        return None if text.lower() in _NOT_PLACES else _capitalise(text)
    if name == "thing":
        is_vague = bool(spoken & _VAGUE) or len(text.split()) > _MOST_THING_WORDS or text[:1].isdigit()
        return None if is_vague or ("allergic" in rule.says and spoken & _NOT_ALLERGIES) else text
    if name == "age":
        return text if int(text) in _AGES else None
    if name in {"demonym", "language", "spoken"}:
        return " ".join(word if word in {"and", "a", "little"} else _capitalise(word) for word in text.split())
    if name == "taste":
        return _TASTES[text.lower()]
    return text if name == "said" else _theirs(text)


def _capitalise(text: str) -> str:
    return text if any(letter.isupper() for letter in text) else text.title()


def _theirs(text: str) -> str:
    """`with my wife` → `with their wife`."""
    return _WORD.sub(lambda match: _THEIRS.get(match[0].lower(), match[0]), text)


def _as_asked(text: str) -> Fact | None:
    """Return what no rule knows but the user wants remembered: "my …" in the third person, else in their words."""
    if len(text.split()) < _FEWEST_WORDS:
        return None
    if text[:3].lower() == "my ":
        return Fact(f"The user's {_theirs(text[3:])}.")
    return Fact(f"The user said: “{text[:1].upper()}{text[1:]}.”")


def _is_harmless(content: str) -> bool:
    """Return whether no model could take it for an order: it addresses nobody and holds no mark-up."""
    words = {word.lower() for word in _WORD.findall(content)}
    is_plain = "\n" not in content and _MARKUP.isdisjoint(content) and "http" not in content
    return is_plain and len(content) <= MAX_CHARACTERS and words.isdisjoint(_FORBIDDEN)
