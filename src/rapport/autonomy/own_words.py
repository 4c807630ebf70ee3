"""What a person wrote themselves, and whether a memory or a matter is made of it (ADR 36).

A model may obey what stands in a note, in a message that somebody replies to or in a pasted mail. Whatever it wants to keep
or to come back to must therefore be made of the person's own words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rapport.autonomy.generic_words import EQUIVALENT, GENERIC, NEGATIONS, NUMBERS, UNIVERSALS
from rapport.autonomy.words import SMALL_WORDS, stem, words
from rapport.domain.conversation import Message
from rapport.domain.synthetic import is_synthetic

IMPORTED = "import:"
"""The client's id of a message that came from a file begins with this: whose words those are nobody has checked."""

_LONGEST = 16_000
"""Characters of a message that are looked at."""
_FORWARDED = "[forwarded"
"""How a channel begins the text of a message that was forwarded."""
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
_QUOTATION = re.compile(r'"[^"\n]{1,1000}"|“[^”\n]{1,1000}”|„[^“”\n]{1,1000}[“”]|«[^»\n]{1,1000}»|`[^`\n]{1,1000}`')
_WORDS_OF_A_TITLE = 4
"""What stands in quotation marks and is no longer than this is a name or a title, and the person's own."""
_SHORTEST_PREFIX = 4
_LONGEST_ENDING = 2
_UNSPACED = re.compile("[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]")
_UNSPACED_SHARE = 0.6
"""Scripts without spaces are compared by pairs of characters, and some pairs stand across two words."""
_MENTION = re.compile(r"(?<![\w@.])@[\w-]+")
_LONGEST_ELISION = 2
_WRITTEN = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_SENTENCE_END = (".", "!", "?", "\n", ":")


def own_text(text: str) -> str:
    """Return what is left of a message without what it quotes: code, quoted lines, quotations, mails, forwarded messages."""
    text = text[:_LONGEST]
    if text.lstrip().startswith(_FORWARDED):
        return ""
    text = _BLOCK.sub("\n", text)
    if mail := _MAIL.search(text):
        text = text[: mail.start()]
    kept = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith((">", "＞", "|")))
    return _QUOTATION.sub(lambda found: found[0] if len(found[0].split()) <= _WORDS_OF_A_TITLE else " ", kept)


def own_subject(text: str) -> str:
    """Return what somebody wrote themselves without whom they address: @names say nothing of what it is about."""
    return _MENTION.sub(" ", own_text(text))


def own_messages(said: Sequence[Message], *, of: Message | None = None, owner_id: str | None = None) -> list[Message]:
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


def is_founded(claim: str, own: Iterable[str]) -> bool:
    """Return whether a memory or a matter is made of a person's own words, which `own` holds, message by message.

    Every word that carries something must stand there, inflected or not; a number or a name as it is. What the claim denies
    or says of everything must be denied or said of everything there, too.
    """
    texts = [own_text(text) for text in own]
    theirs = {word for text in texts for word in _words(text)}
    stems = {_form(word) for word in theirs}
    written = [word for word in _words(claim) if _carries(word)]
    pairs = [word for word in written if _UNSPACED.match(word)]
    spaced = [word for word in written if not _UNSPACED.match(word)]
    if not theirs or sum(word in theirs for word in pairs) < _UNSPACED_SHARE * len(pairs):
        return False
    names = _names_in(claim)
    if not all(_stands(word, stems, theirs, is_name=word in names) for word in spaced):
        return False
    forms = {_form(word) for word in written}
    about = [set(_words(text)) for text in texts if not forms or _shares(forms, text)]
    return all(not _claims(claim, strong) or any(strong & each for each in about) for strong in (NEGATIONS, UNIVERSALS))


def _shares(forms: set[str], text: str) -> bool:
    return any(_same(form, _form(word)) for word in _words(text) for form in forms)


def _words(text: str) -> list[str]:
    """Return the words of a text; an article or pronoun that is written together with its word (l'utente) stands alone."""
    return [part for word in words(text) for part in _parts(word)]


def _parts(word: str) -> Sequence[str]:
    before, mark, after = word.partition("'")
    return (before, after) if mark and len(before) <= _LONGEST_ELISION and len(after) > _LONGEST_ELISION else (word,)


def _claims(claim: str, strong: frozenset[str]) -> bool:
    return any(word in strong for word in _words(claim))


def _carries(word: str) -> bool:
    """Return whether a word says something of its own; one that goes with any person or subject does not."""
    if any(character.isdigit() for character in word):
        return True
    bare = word.removesuffix("'s")
    return len(word) > 1 and not ({word, bare} & SMALL_WORDS or {word, bare} & GENERIC)


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
    word = NUMBERS.get(word, word)
    return EQUIVALENT.get(word) or EQUIVALENT.get(stem(word)) or stem(word)


def _stands(word: str, stems: set[str], theirs: set[str], *, is_name: bool) -> bool:
    form = _form(word)
    if form in stems or word in theirs:
        return True
    if any(character.isdigit() for character in word):
        return False
    return any(_is_inflected(form, other, is_name=is_name) for other in stems)


def _is_inflected(one: str, other: str, *, is_name: bool) -> bool:
    """Return whether two words differ in their endings alone; a name only has an ending or none."""
    shared = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        shared += 1
    endings = (len(one) - shared, len(other) - shared)
    if shared < _SHORTEST_PREFIX or max(endings) > _LONGEST_ENDING:
        return False
    return min(endings) == 0 if is_name else True


def sources_of(matter: str, messages: Sequence[Message]) -> list[str]:
    """Return the ids of the messages that a matter comes from: those that hold most of its words, of several the newest."""
    wanted = {_form(word) for word in _words(matter) if _carries(word)} or {_form(word) for word in _words(matter)}
    best, found = 0, None
    for message in messages:
        forms = {_form(word) for word in _words(own_subject(message.text))}
        shared = sum(any(_same(word, form) for form in forms) for word in wanted)
        if shared and shared >= best:
            best, found = shared, message.id
    return [found] if found else []


def _same(one: str, other: str) -> bool:
    return one == other or _is_inflected(one, other, is_name=False)
