"""Tell what a person wrote themselves, and whether a memory or a topic is made of it (ADR 36).

A model may obey what stands in a note, in a message that somebody replies to or in a pasted mail. Whatever it wants to keep
or to come back to must therefore be made of the person's own words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from rapport.domain.conversation import Message
from rapport.domain.phrases import load_languages, load_words
from rapport.domain.synthetic import is_synthetic
from rapport.followups.word_stems import DATA, KNOWN, SMALL_WORDS, stem, words

IMPORTED = "import:"
"""The client's id of a message that came from a file begins with this: whose words those are nobody has checked."""

_LONGEST = 16_000
"""Characters of a message that are looked at."""
_FORWARDED = "[forwarded"
"""The words with which a channel begins the text of a message that was forwarded."""
_BLOCK = re.compile(
    r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)|<blockquote\b.*?(?:</blockquote>|\Z)|<pre\b.*?(?:</pre>|\Z)",
    re.DOTALL | re.IGNORECASE,
)
_MAIL = re.compile(
    r"^[ \t]*(?:-{2,}[ \t]*(?:original|forwarded|weitergeleitete|ursprüngliche)\b.{0,80}|begin forwarded message:?"
    r"|(?:from|von|de|da|van):[ \t].{1,200}|(?:on|am|le|el|il|em|op) .{4,120} (?:wrote|schrieb|a écrit|escribió|ha scritto"
    r"|escreveu|schreef).{0,80}:)[ \t]*$",
    re.IGNORECASE | re.MULTILINE,
)
_QUOTATION = re.compile(r'"[^"\n]{1,1000}"|“[^“”\n]{1,1000}”|„[^„“”\n]{1,1000}[“”]|«[^«»\n]{1,1000}»|`[^`\n]{1,1000}`')
_WORDS_OF_A_TITLE = 4
"""Number of words: text in quotation marks that is no longer than this is a name or a title, and the person's own."""
_SHORTEST_BEGINNING = 4
_LONGEST_CLAIM = 2_000
_LONGEST_ENDING = 2
_UNSPACED = re.compile("[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]")
_UNSPACED_SHARE = 0.6
"""Scripts without spaces are compared by pairs of characters, and some pairs stand across two words."""
_MENTION = re.compile(r"(?<![\w@.])@[\w-]+")
_LONGEST_ELISION = 2
_WRITTEN = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_CLAUSES = re.compile(
    r"[.!?;,\n]+|\b(?:and|but|so|because|und|aber|sondern|et|mais|y|pero|e|ma|mas|en|maar)\b", re.IGNORECASE
)
_SENTENCE_END = (".", "!", "?", "\n", ":")
_GENERIC = load_words(DATA, "generic")
_NEGATIONS = load_words(DATA, "negations")
_UNIVERSALS = load_words(DATA, "universals")
_EQUIVALENT: dict[str, str] = {
    form: group.split()[0]
    for group in load_languages(DATA)["en"]["equivalent"]
    for word in group.split()
    for form in (word, stem(word))
}
"""Words that stand for each other, and their stems, by the first of their group."""
_COUNTING = "zero one two three four five six seven eight nine ten eleven twelve"
_NUMBERS = {word: str(number) for number, word in enumerate(_COUNTING.split())}


@lru_cache(KNOWN)
def keep_own_text(text: str) -> str:
    """Return what is left of a message without what it quotes: code, quoted lines, quotations, mails, forwarded messages."""
    text = text[:_LONGEST]
    if text.lstrip().startswith(_FORWARDED):
        return ""
    text = _BLOCK.sub("\n", text)
    if mail := _MAIL.search(text):
        text = text[: mail.start()]
    kept = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith((">", "＞", "|")))
    return _QUOTATION.sub(lambda found: found[0] if len(found[0].split()) <= _WORDS_OF_A_TITLE else " ", kept)


@lru_cache(KNOWN)
def find_own_subject(text: str) -> str:
    """Return what somebody wrote themselves without whom they address: @names say nothing of what it is about."""
    return _MENTION.sub(" ", keep_own_text(text))


def find_own_messages(
    said: Sequence[Message], *, of: Message | None = None, owner_id: str | None = None
) -> list[Message]:
    """Return what the person wrote among these messages, oldest first: nobody else's, no agent's, nothing imported.

    The person is the author of the message `of`, or of the newest that a person wrote. With `owner_id` it must be the
    owner: who names no author is, and so is whoever is the only author there.
    """
    people = [message for message in said if _is_a_persons(message)]
    speaker = of or (people[-1] if people else None)
    if speaker is None or not _is_a_persons(speaker):
        return []
    if owner_id is not None:
        authors = {_author(message) for message in (*people, speaker)}
        if _author(speaker) not in (None, owner_id) and len(authors) > 1:
            return []
    return [message for message in people if _author(message) == _author(speaker)]


def _is_a_persons(message: Message) -> bool:
    is_imported = (message.client_message_id or "").startswith(IMPORTED)
    return message.role == "user" and not message.is_bot and not is_synthetic(message) and not is_imported


def _author(message: Message) -> str | None:
    return message.author.id if message.author else None


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    """The words of some texts, and what each is without an ending."""

    words: frozenset[str]
    forms: frozenset[str]
    beginnings: frozenset[str]

    @classmethod
    def of(cls, texts: Iterable[str]) -> _Vocabulary:
        words = frozenset(word for text in texts for word in _words(text))
        forms = frozenset(map(_form, words))
        return cls(words, forms, frozenset(begin for form in forms for begin in _beginnings(form)))

    def holds(self, word: str, *, is_name: bool = False) -> bool:
        """Return whether the word stands there, with this ending or another; a name has an ending or none."""
        form = _form(word)
        if form in self.forms or word in self.words:
            return True
        if any(character.isdigit() for character in word):
            return False
        if is_name:
            return form in self.beginnings or any(begin in self.forms for begin in _beginnings(form))
        return any(begin in self.beginnings for begin in _beginnings(form))


def _beginnings(form: str) -> list[str]:
    """Return the form and what is left of it without its last letter or two, if that is long enough to tell."""
    return [form[: len(form) - cut] for cut in range(_LONGEST_ENDING + 1) if len(form) - cut >= _SHORTEST_BEGINNING]


def is_founded(claim: str, own: Iterable[str], *, is_matter: bool = False) -> bool:
    """Return whether a memory or a topic is made of a person's own words, which `own` holds, message by message.

    Every word that carries something must stand there, inflected or not; a number or a name as it is. What the claim says of
    everything must be said of everything there, too. A memory must deny just what the person denied; a topic need not: what
    somebody has not done yet is one. A claim that is too long to be one is not.
    """
    if len(claim) > _LONGEST_CLAIM:
        return False
    texts = [keep_own_text(text) for text in own]
    theirs = _Vocabulary.of(texts)
    written = [word for word in _words(claim) if _carries(word)]
    pairs = [word for word in written if _UNSPACED.match(word)]
    if not theirs.words or sum(word in theirs.words for word in pairs) < _UNSPACED_SHARE * len(pairs):
        return False
    names = _names_in(claim)
    spaced = [word for word in written if not _UNSPACED.match(word)]
    if not all(theirs.holds(word, is_name=word in names) for word in spaced):
        return False
    return _keeps_universals(claim, texts, written) and (is_matter or _keeps_denial(claim, texts, written))


def _keeps_universals(claim: str, texts: Sequence[str], written: Sequence[str]) -> bool:
    if _UNIVERSALS.isdisjoint(_words(claim)):
        return True
    each = [_Vocabulary.of([text]) for text in texts]
    return any(_UNIVERSALS & text.words for text in each if not written or _count(text, written))


def _keeps_denial(claim: str, texts: Sequence[str], written: Sequence[str]) -> bool:
    """Return whether a clause that holds most of the claim's words denies just when the claim does."""
    each = [_Vocabulary.of([clause]) for text in texts for clause in _CLAUSES.split(text)]
    most = max(_count(clause, written) for clause in each)
    denies = not _NEGATIONS.isdisjoint(_words(claim))
    return any(denies == bool(_NEGATIONS & clause.words) for clause in each if _count(clause, written) == most)


def _count(text: _Vocabulary, written: Sequence[str]) -> int:
    return sum(text.holds(word) for word in written)


def _words(text: str) -> list[str]:
    """Return the words of a text; an article or pronoun that is written together with its word (l'utente) stands alone."""
    return [part for word in words(text) for part in _parts(word)]


def _parts(word: str) -> Sequence[str]:
    before, mark, after = word.partition("'")
    return (before, after) if mark and len(before) <= _LONGEST_ELISION and len(after) > _LONGEST_ELISION else (word,)


def _carries(word: str) -> bool:
    """Return whether a word says something of its own; one that goes with any person or subject does not."""
    if any(character.isdigit() for character in word):
        return True
    bare = word.removesuffix("'s")
    return len(word) > 1 and not ({word, bare} & SMALL_WORDS or {word, bare} & _GENERIC)


def _names_in(text: str) -> set[str]:
    """Return the words that are written like names: with a capital, and not because a sentence begins."""
    found: set[str] = set()
    for match in _WRITTEN.finditer(text):
        before = text[: match.start()].rstrip(" \"'“”„«»()*_")
        begins = not before or before.endswith(_SENTENCE_END)
        if match[0][0].isupper() and not begins:
            found.update(_words(match[0]))
    return found


def _form(word: str) -> str:
    word = _NUMBERS.get(word, word)
    return _EQUIVALENT.get(word) or _EQUIVALENT.get(stem(word)) or stem(word)


def find_sources(topic: str, messages: Sequence[Message]) -> list[str]:
    """Return the ids of the messages that a topic comes from: the one that holds most of its words, of several the newest."""
    wanted = {word for word in _words(topic) if _carries(word)} or set(_words(topic))
    best, found = 0, None
    for message in messages:
        theirs = _Vocabulary.of([find_own_subject(message.text)])
        shared = sum(theirs.holds(word) for word in wanted)
        if shared and shared >= best:
            best, found = shared, message.id
    return [found] if found else []
