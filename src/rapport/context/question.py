"""Find the question of a call: its own words, or the message that it refers to if it has none (CTX-2)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from functools import lru_cache

from rapport.context.relevance.line_features import CACHED_TEXTS, read_line
from rapport.domain.conversation import Message

MAX_QUOTED_MESSAGES = 3
"""The number of the latest messages that can be the subject of a call without one."""

AWAY_AFTER = timedelta(hours=1)
"""A person who has written nothing for this long does not take part in the discussion any more."""

PICTURE = "[picture]"
"""The text for a picture, also in a message without text."""

_HEAD, _TAIL = 1_500, 500
_MENTION = re.compile(r"(?<![\w@.])@[\w-]+(?:\.\w+)*[,:]?")
_COMMAND = re.compile(r"^\s*/\w+(?:@[\w-]+)?")
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_MAX_BARE_WORDS = 12


def _split_words(words: str) -> frozenset[str]:
    return frozenset(words.split())


# A call with only these words asks about the messages before it.
EMPTY_WORDS = _split_words(
    "a an the one ones and or so as at by for from in of on to with about up out over into i me my we us our you your u ur he she they "
    "them it its this that these those here there above below what what's whats who who's which how why is are was be am do "
    "does did can could would will should shall may might have has had not any some all anything something please pls plz "
    "ok okay well hmm um er just now then also too else again really more bit little quick quickly maybe "
    "think thinking thought thoughts idea ideas opinion opinions view views take say says said comment comments input "
    "suggestion suggestions suggest advice advise recommend recommendation recommendations feedback wdyt help helping "
    "assist agree disagree right wrong true correct chime weigh look see check read answer reply respond explain "
    "clarify discuss tell let know make sense mean means meaning like get give got hey yo summarize summarise summary sum tldr "
    "tl dr recap settle fact facts turn bot companion librarian wrap "
    # German, French, Spanish, Russian, Chinese, Japanese, Korean
    "was wer wie ist das die der dem den es du ihr ihn sie wir uns dir dazu davon dafür meinst meint meinung denkst denkt "
    "hältst sagst sagt hilf helfen hilfe kannst könntest könnt bitte mal hier ideen idee vorschlag vorschläge rat stimmt "
    "que qu'en qu'est-ce quoi qui est ce cela ça c'est en de du la le les tu vous nous toi penses pensez dis dites avis ton "
    "votre peux pouvez aider aide aidez idées plaît s'il te "
    "qué que quién es esto eso esta este el lo los las tú tu nos piensas opinas opinan dices dice opinión puedes podrías "
    "что думаешь думаете скажешь скажете как по твоему вашему мнение помоги помогите ты вы 你怎么看 怎么看 どう思う 어떻게 생각해 "
    "ayuda ayudar ayudarnos ayudarme ayúdanos favor por ideas consejo"
)


def clip_middle(text: str) -> str:
    """Return the part of a text that shows its subject: the beginning and the end of a very long one."""
    return text if len(text) <= _HEAD + _TAIL else f"{text[:_HEAD]} {text[-_TAIL:]}"


def strip_address(text: str) -> str:
    """Return the text without the mention or command that addresses somebody; without the middle of a very long one."""
    return " ".join(_MENTION.sub(" ", _COMMAND.sub(" ", clip_middle(text), count=1)).split())


def is_bare(text: str) -> bool:
    """Return True if a call has no subject: "@bot", "@bot ^", "@bot what do you think?", "can you help with this"."""
    words = [word.casefold() for word in _WORD.findall(strip_address(text))]
    return len(words) <= _MAX_BARE_WORDS and all(word.replace("’", "'") in EMPTY_WORDS for word in words)


@lru_cache(maxsize=CACHED_TEXTS)
def find_subject_words(text: str) -> tuple[str, ...]:
    """Return the words of a text that can show its subject, each once, in lower case."""
    words = (word.casefold().replace("’", "'") for word in read_line(strip_address(text)).words)
    return tuple(dict.fromkeys(word for word in words if word not in EMPTY_WORDS))


def drop_empty_replies(messages: Sequence[Message]) -> list[Message]:
    """Return the messages without replies that were cancelled before they began."""
    return [message for message in messages if message.role == "user" or message.text.strip()]


def get_author_id(message: Message) -> str:
    """Return the author's id, which stays the same when the name changes; without an author, the role."""
    return message.author.id if message.author else message.role


def derive_question(replied_to: Message | None, chosen: Sequence[Message]) -> str:
    """Return the question of a bare call: the replied-to message, or the latest question and the messages after it."""
    if replied_to is not None and _text_has_subject(replied_to):
        return strip_address(replied_to.text)
    messages = [message for message in chosen if has_subject(message)][-MAX_QUOTED_MESSAGES:]
    first = max((number for number, message in enumerate(messages) if "?" in message.text), default=0)
    quoted = [*([replied_to] if replied_to is not None else []), *messages[first:]]
    return " ".join(strip_address(message.text) for message in quoted)


def has_subject(message: Message) -> bool:
    """Return True if a person wrote it and it has a subject."""
    return message.role == "user" and not message.is_bot and _text_has_subject(message)


def _text_has_subject(message: Message) -> bool:
    text = clip_middle(message.text)
    return text != PICTURE and bool(_WORD.search(text)) and not is_bare(text)
