"""Bad news of somebody's own: a death, an illness, a job or a love that is over. Nobody is asked for tasks after it (AUTO-1)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from rapport.domain.conversation import Message
from rapport.followups.closings import keep_both_ends
from rapport.followups.word_stems import KNOWN, content_words, plain, stem

_SUBSTANCE = 3
"""Content words from which on a message has a subject of its own."""
_ANIMAL = r"(?:dog|cat|puppy|kitten|horse|pony|rabbit|hamster|parrot|budgie|guinea pig|pet)"
_SOMEBODY = (
    r"(?:mum|mom|mother|dad|father|brother|sister|wife|husband|son|daughter|friend|grandma|grandpa|grandmother|grandfather|granny"
    r"|uncle|aunt|cousin|nephew|niece|partner|baby|child|boyfriend|girlfriend|colleague|neighbou?r|teacher|boss|nan|gran|fianc\w+|stepfather|stepmother|godmother|godfather|dog|cat|puppy|kitten|horse|pony|rabbit|hamster|parrot|budgie"
    r"|guinea pig|pet)"
)
_BAD_NEWS = re.compile(
    # In English, first what has to do with death.
    rf"\b(?:passed away|(?:he|she) (?:has |just |sadly |suddenly |finally )*(?:died|passed(?= (?:on|peacefully|suddenly|yesterday|last|this)\b| ?[.,!]| ?$)|didn't make it|did not make it)"
    rf"|died (?:yesterday|today|suddenly|in (?:my|her|his) (?:arms|sleep)|of (?:cancer|a heart|old age)|last (?:night|week|month)"
    rf"|this (?:morning|week|month))|(?:my|our) (?:[\w'-]+ )?{_SOMEBODY}(?:,? [\w'-]+,?)? (?:has |just |recently |suddenly "
    rf"|sadly |unexpectedly )*(?:died|is dying|is dead(?! (?:tired|set|sure|wrong|right|serious))|passed(?= (?:on|peacefully|suddenly|yesterday|last|this)\b| ?[.,!]| ?$)|didn't make it|had to be put (?:down|to sleep)|was put (?:down"
    rf"|to sleep))"
    rf"|had to put (?:(?:my|our) (?:[\w'-]+ )?{_ANIMAL} (?:down|to sleep)|(?:him|her) down)"
    rf"|funeral|(?:death|loss) of (?:my|our)|lost (?:my|our) (?:[\w'-]+ )?{_SOMEBODY}|lost the baby|miscarriage|miscarried"
    r"|stillb\w+|terminal(?:ly ill| cancer| illness)|(?:diagnosed with|have|has|got) (?:\w+ )?(?:cancer|leuk\w+|als|dementia"
    r"|alzheimer's|a (?:brain )?tumou?r)|cancer (?:is|came) back|grieving|in mourning"
    # work
    r"|(?:i|we)(?:'ve| have)?(?: just| all| both)* (?:got|been|was|were|am being|get|gotten) (?:just )?(?:laid off|fired|sacked"
    r"|made redundant|let go|dismissed|evicted)|i'?(?:m| am) being (?:laid off|made redundant|let go)|(?:they|my boss|the company"
    r"|my company) (?:just )?(?:fired|sacked|laid off|dismissed) (?:me|us)|laid me off|let me go\b(?! (?:to|home|early))"
    r"|lost (?:my|our) (?:job|house|home|flat)|my (?:business|company) (?:went|is) bankrupt"
    # love
    r"|(?:we|my (?:boy|girl)friend and i|my (?:wife|husband|partner|fianc\w+) and i)(?:'ve| have)?(?: just| recently)* (?:broke up(?! the| into)"
    r"|broken up|split up(?! the| into| for)|separated(?! the| them| our| it)|called off the (?:wedding|engagement)|are (?:getting (?:a )?divorced?|separating"
    r"|splitting up|breaking up))|broke up with me|dumped me|walked out on me|cheated on me|cheating on me"
    r"|(?:wife|husband|partner|boyfriend|girlfriend|fianc\w+|she|he) (?:has |just )*(?:left me\b(?! (?:a|the|some|alone|with|two))"
    r"|wants a divorce|filed for divorce)|my (?:break-?up|divorce)"
    # misfortune
    r"|(?:i|we) (?:was|were|got|have been|'ve been) (?:robbed|mugged|burgled|assaulted)|(?:house|flat|apartment|home)"
    r" (?:has |was )?(?:burned|burnt) down)\b"
    # German, French, Spanish, Italian, Portuguese, Dutch
    r"|\b(?:(?:ist|sind) (?:\w+ ){0,3}(?:gestorben|verstorben|tot)|gestorben ist|beerdigung|verstorben|eingeschlafert"
    r"|(?:bin|wurde|worden) (?:\w+ ){0,2}(?:gekundigt|entlassen)|(?:gekundigt|entlassen) worden|mir (?:wurde )?(?:\w+ )?gekundigt"
    r"|(?:haben uns|hat sich) (?:\w+ ){0,3}getrennt|schluss gemacht|hat mich verlassen|job verloren)\b"
    r"|\b(?:est (?:morte?|decedee?)|nous a quittes|enterrement|funerailles|ai (?:\w+ )?perdu (?:mon|ma) (?:travail|emploi|pere"
    r"|mere|chien|chat)|ete (?:licenciee?|viree?)|s'est (?:separes?|quittes?)|avons rompu|m'a (?:quittee?|larguee?))\b"
    r"|\b(?:ha muerto|murio|fallecio|ha fallecido|funeral|me (?:han )?despedid[oa]|me (?:despidieron|echaron)|(?:hemos roto|rompimos"
    r"|nos separamos)|me dejo (?:mi|por)|perdi (?:mi|el) trabajo)\b"
    r"|\b(?:e mort[oa]|e mancat[oa]|funerale|licenziat[oa]|ci siamo lasciati|mi ha lasciat[oa]|ho perso il lavoro)\b"
    r"|\b(?:morreu|faleceu|velorio|enterro|fui (?:demitid|despedid)[oa]|me (?:demitiram|despediram)|perdi o emprego"
    r"|(?:nos )?separamo-?nos|nos separamos|terminou comigo)\b"
    r"|\b(?:is (?:\w+ ){0,2}(?:overleden|gestorven|dood)|begrafenis|uitvaart|ben (?:\w+ )?ontslagen|zijn uit elkaar"
    r"|heeft (?:het uitgemaakt|me verlaten)|baan kwijt)\b"
)
# Somebody is still spoken of, or it still hurts.
_STILL = re.compile(
    r"\b(?:he|she|him|her|his|hers|sad|sadness|cry\w*|cried|tears|miss(?:ed|ing)?|empty|lonely|alone|numb|grief|hurts?|heartbroken"
    r"|cope|coping|traurig|wein\w+|vermisse|triste|manque|extrano|echo de menos|manca|saudades?|verdrietig|mis)\b"
)
_CONDOLES = re.compile(
    r"\b(?:sorry for your loss|condolences|herzliches beileid|mein beileid|condoleances|lo siento mucho por tu perdida"
    r"|condoglianze|condolencias|gecondoleerd|pesames)\b"
)


@lru_cache(KNOWN)
def bad_news(text: str) -> bool:
    """Return whether a person tells of something sad that happened to them."""
    return bool(_BAD_NEWS.search(keep_both_ends(text)))


@lru_cache(KNOWN)
def condoles(text: str) -> bool:
    """Return whether a reply answers a death."""
    return bool(_CONDOLES.search(keep_both_ends(text)))


def since_bad_news(said: Sequence[Message]) -> Sequence[Message] | None:
    """Return what was said since the user turned from bad news to something else; all of it without any, None if they have not."""
    sad = [index for index, message in enumerate(said) if _is_sad(message)]
    if not sad:
        return said
    sorrow = {stem(word) for index in sad for word in content_words(said[index].text)}
    sorrow |= {stem(word) for message in said[: sad[-1]][-1:] for word in content_words(message.text)}
    for index in range(sad[-1] + 1, len(said)):
        about = [stem(word) for word in content_words(said[index].text)] if said[index].role == "user" else []
        if len(about) >= _SUBSTANCE and not sorrow & set(about) and not _STILL.search(plain(said[index].text)):
            return said[index:]
    return None


def _is_sad(message: Message) -> bool:
    return bad_news(message.text) if message.role == "user" else message.role == "assistant" and condoles(message.text)
