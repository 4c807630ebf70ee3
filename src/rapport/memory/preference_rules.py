"""Rules for what somebody likes, does and is after; and the simplest sentences in German, French and Spanish."""

from __future__ import annotations

import re

from rapport.memory.grammar import USER, Fact, key_of, object_of, sentence, theirs, third
from rapport.memory.personal_facts import ALSO, AM, CAPITAL, NAME, Rule, either, rule, says
from rapport.memory.word_lists import HABIT_VERBS, LANGUAGES, NOT_NAMES

_EMPTY_LIKES = re.compile(
    r"^(?:how|what|when|where|why|who|if|to (?:hear|see|know|be|think|get|say|ask|admit|bother|break|tell|believe|imagine|disappoint|"
    r"interrupt|help|know|discuss|talk|try|learn more|understand|start|point|ruin|inform|report|disagree|complain|burst)\b|"
    r"the (?!sea|ocean|mountains|beach|countryside|outdoors|theatre|theater|opera|cinema|rain|snow|cold|heat|sun|smell|colou?r|piano|"
    r"guitar|violin|taste of|sound of|gym|desert|forest|dark|winter|summer|autumn|news|(?-i:[A-Z]))|"
    r"my|our|option|number|an?\b(?!.* of\b)|some|any|all|every|another|more|most|less|being|having to|\d|"
    r"(?:mon|tues|wednes|thurs|fri|satur|sun)day$|life\b|living$|god|jesus|allah|trump|men$|women$|guys$|girls$|boys$)",
    re.IGNORECASE,
)
_DEGREE = r"(?:(?:really|absolutely|also|just|simply|totally|truly|especially|particularly|definitely|still|actually|always|usually|generally|mostly|honestly|personally|genuinely|quite|much|do|completely) )*"
_TASTES = {
    "love": "loves", "like": "likes", "enjoy": "enjoys", "adore": "adores", "prefer": "prefers", "hate": "hates",
    "dislike": "dislikes", "detest": "detests", "loathe": "loathes", "despise": "despises", "can't stand": "can't stand",
    "cannot stand": "can't stand", "can not stand": "can't stand", "don't like": "doesn't like", "do not like": "doesn't like",
    "don't enjoy": "doesn't enjoy", "do not enjoy": "doesn't enjoy", "can't bear": "can't bear",
}  # fmt: skip
_OFTEN = re.compile(
    r"\b(?:every (?:other |second |single )?(?:day|morning|evening|night|week|weekend|month|year|spring|summer|autumn|winter|"
    r"monday|tuesday|wednesday|thursday|friday|saturday|sunday)|(?:on )?(?:mon|tues|wednes|thurs|fri|satur|sun)days|"
    r"(?:once|twice|\w+ times) (?:a|per) (?:day|week|month|year)|daily|weekly|on weekends|at (?:the )?weekends?|each (?:day|morning|week))\b",
    re.IGNORECASE,
)
_FREQUENTLY = r"(?:usually|always|often|regularly|normally|typically|never|rarely|generally|sometimes|hardly ever)"


def _taste(match: re.Match[str]) -> Fact | None:
    verb, thing = match[1].lower(), object_of(match[2])
    if thing is None or _EMPTY_LIKES.match(thing) or re.search(r"\b(?:i|we|i'm|my|myself)\b", thing, re.IGNORECASE):
        return None
    return Fact(sentence(f"{_TASTES[verb]} {thing}"), key_of("taste", thing))


def _fondness(match: re.Match[str]) -> Fact | None:
    thing = object_of(match[2])
    if thing is None or _EMPTY_LIKES.match(thing) or re.search(r"\b(?:i|my|myself)\b", thing, re.IGNORECASE):
        return None
    return Fact(sentence(f"is {match[1].lower()} {thing}"), key_of("taste", thing))


def _favourite(match: re.Match[str]) -> Fact | None:
    kind, thing = match[1].strip().lower(), object_of(match[2])
    if (
        thing is None
        or kind in {"part", "one", "thing", "person"}
        or re.match(r"(?:when|how|where|to|the one|my)\b", thing, re.IGNORECASE)
    ):
        return None
    return Fact(f"The user's favourite {kind} is {thing}.", f"favourite {kind}")


def _habit(match: re.Match[str]) -> Fact | None:
    verb, rest = match["verb"], match["rest"].strip(" .,")
    often = (match.groupdict().get("often") or "").lower()
    if len(rest) > 90 or re.search(
        r"\b(?:you|your|it|this|that|these|those|same|last|ago|was|were|did)\b", rest, re.IGNORECASE
    ):
        return None
    if not often and not _OFTEN.search(rest):
        return None
    return Fact(sentence(f"{often} {third(verb)} {theirs(rest)}"))


def _plays(match: re.Match[str]) -> Fact | None:
    thing = object_of(match[2])
    if thing is None or re.search(
        r"\b(?:with|games? (?:now|tonight)|role|part|dead|dumb|along|safe|it)\b", thing, re.IGNORECASE
    ):
        return None
    return Fact(sentence(f"{third(match[1])} {theirs(thing)}"))


def _goal(match: re.Match[str]) -> Fact | None:
    aim = re.sub(r" (?:for|since) (?:\w+ )?(?:years?|months?|weeks?|ages|\d{4}).*$", "", match[2]).strip(" .,")
    if len(aim) > 90 or re.search(
        r"\b(?:you|your|it|this|that|these|those|a lot|so much|more about|something|here|there)\b", aim, re.IGNORECASE
    ):
        return None
    return Fact(sentence(f"is {match[1].lower()} {theirs(aim)}"))


def _aim(match: re.Match[str]) -> Fact | None:
    aim = object_of(match[2])
    return Fact(f"The user's {match[1].lower()} is to {theirs(aim)}.") if aim else None


def _foreign_name(match: re.Match[str]) -> Fact | None:
    named = match[1].strip(" .,")
    is_one = all(word.lower() not in NOT_NAMES for word in named.split())
    return Fact(f"The user's name is {named}.", "name") if is_one else None


def _foreign_age(match: re.Match[str]) -> Fact | None:
    years = int(match[1])
    return Fact(sentence(f"is {years} years old"), "age") if 4 <= years <= 110 else None


def _as_said(match: re.Match[str]) -> Fact:
    return Fact(f"{USER} said: “{match[0]}.”")


_INSTRUMENTS = r"(?:an? )?(?:the )?"
RULES: tuple[Rule, ...] = (
    # Likes and dislikes
    rule(rf"(?:i|we) {_DEGREE}({either(_TASTES)}) (?:really )?(.{{2,90}})$", _taste),
    rule(rf"{AM} {_DEGREE}(?:very |so |super |pretty |a bit )?((?:into|fond of|keen on|passionate about|crazy about|afraid of|scared of|terrified of|interested in|obsessed with|good at|bad at))(?: of)? (.{{3,80}})$", _fondness),
    rule(rf"{AM} (?:also )?(not )?(?:really )?a (?:big |huge |great |massive |lifelong )?fan of (.{{3,80}})$", lambda match: _fan(match)),
    rule(r"my (?:all-time |absolute )?fav(?:ou?rite|e)? ([\w' -]{2,30}?)(?: (?:ever|of all time))?(?: is|'s| are) (?:probably |definitely |still |also )?(.{2,60})$", _favourite),
    rule(r"i (?:always |usually )?(like|take|drink|prefer) (my (?:coffee|tea|eggs|steak|espresso|toast) (?!with you)[\w' -]{3,40})$", lambda match: Fact(sentence(f"{third(match[1])} {theirs(match[2])}"))),
    # Habits
    rule(rf"(?:i|we) (?:also )?(?:(?P<often>{_FREQUENTLY}) )?(?P<verb>{either(HABIT_VERBS)})\b(?P<rest> .{{2,110}})$", _habit),
    rule(rf"(?:every (?:day|morning|evening|night|week|weekend|month|year|summer|winter|\w+day)|on \w+days),? (?:i|we) (?P<verb>{either(HABIT_VERBS)})\b(?P<rest> .{{2,90}})$", lambda match: _habit_every(match)),
    rule(rf"i {ALSO}(play) ({_INSTRUMENTS}(?:piano|guitar|violin|viola|cello|drums|flute|clarinet|saxophone|trumpet|bass|ukulele|accordion|harp|organ|banjo|oboe|trombone|chess|football|soccer|tennis|basketball|volleyball|badminton|handball|golf|rugby|cricket|hockey|ice hockey|squash|table tennis|baseball|bridge|poker|go|video games|board games|computer games|water polo|padel)\b.{{0,40}})$", _plays),
    rule(rf"i {ALSO}(collect) ([\w' ,-]{{3,50}})$", _plays),
    rule(rf"i {ALSO}(do|practise|practice) ((?:yoga|pilates|judo|karate|crossfit|taekwondo|aikido|ballet|tai chi|gymnastics|boxing|calligraphy|pottery|meditation|martial arts|parkour|archery|fencing)\b.{{0,40}})$", _plays),
    rule(rf"i {ALSO}(drive) (an? [\w' -]{{3,40}})$", _plays),
    rule(rf"i {ALSO}(own) (an? (?:[\w-]+ ){{0,2}}(?:house|flat|apartment|boat|car|bike|bicycle|motorbike|motorcycle|van|camper|caravan|piano|allotment|cottage))$", _plays),
    rule(r"i (?:mostly |mainly |usually )?(?:code|program) in ([\w+#., -]{1,40})$", says("programs in {0}")),
    # Goals
    rule(r"i (?:really )?want to ((?:learn (?!more|about|if|how (?:you|this|it))|become|run a|lose weight|quit smoking|stop smoking|write a|start my own|get fit)\b.{0,60})$", lambda match: _wish(match[1])),
    rule(rf"{AM} {ALSO}(training for|saving(?: up)? for|preparing for|studying for|working towards?|planning (?:a trip|a wedding|to move) to|planning) ((?:an?|the|my|our) .{{3,80}}|{CAPITAL}.{{0,60}})$", _goal),
    rule(rf"{AM} {ALSO}(learning) ((?:to (?!live|deal|accept|love|cope|be)\w+|(?:how to )|(?:the|about) \w+|{either(LANGUAGES)}|{CAPITAL}|chess|coding|programming|sign language|knitting|pottery|woodworking|karate|yoga).{{0,60}})$", _goal),
    rule(rf"{AM} {ALSO}(trying to|hoping to|planning to) ((?:lose weight|quit|stop|give up|learn|save|cut down|get (?:fit|pregnant|in shape)|eat (?:less|more|healthier)|become|start|move|retire|buy|run a|finish (?:my|the)|build|open|write|go back to)\b.{{0,70}})$", _goal),
    rule(rf"{AM} {ALSO}(writing|building|renovating|restoring) ((?:an?|my|our) (?:[\w-]+ ){{0,3}}(?:novel|book|thesis|dissertation|memoir|house|boat|robot|app|game|startup|start-up|screenplay|phd|album|cabin|kitchen|farmhouse|car|motorbike|motorcycle)\b.{{0,40}})$", _goal),
    rule(r"my (goal|dream|aim|resolution|new year's resolution|big dream|long-term goal)(?: for (?:this|the|next) [\w ]{3,20})?(?: is|'s) to (.{4,80})$", _aim),
    # German, French, Spanish: sentences that can't be taken for anything else
    rule(rf"(?:ich heiße|ich heisse|mein name ist|je m'appelle|mon nom est|me llamo|mi nombre es) ({NAME})$", _foreign_name),
    rule(rf"(?:ich wohne|ich lebe|j'habite|je vis|vivo) (?:in|à|en|au|aux) ({CAPITAL}(?: {CAPITAL}){{0,2}})$", says("lives in {0}", "home")),
    rule(r"ich bin (\d{1,3}) jahre alt$", _foreign_age),
    rule(r"j'ai (\d{1,3}) ans$", _foreign_age),
    rule(r"tengo (\d{1,3}) años$", _foreign_age),
    rule(r"(?:ich bin (?:vegetarierin|vegetarier|vegetarisch)|je suis végétarien(?:ne)?|soy vegetarian[oa])$", says("is vegetarian", "diet")),
    rule(r"(?:ich bin (?:veganerin|veganer|vegan)|je suis (?:végane?|vegan)|soy vegan[oa])$", says("is vegan", "diet")),
    rule(r"(?:ich bin allergisch (?:gegen|auf)|je suis allergique (?:à|au|aux)|soy alérgic[oa] (?:a|al)) [\w' äöüßéèêàçñáíóú-]{3,40}$", _as_said),
)  # fmt: skip


def _wish(text: str) -> Fact | None:
    aim = object_of(text)
    return Fact(sentence(f"wants to {theirs(aim)}")) if aim else None


def _fan(match: re.Match[str]) -> Fact | None:
    thing = object_of(match[2])
    if thing is None or _EMPTY_LIKES.match(thing) or thing.lower().startswith("your"):
        return None
    return Fact(sentence(f"is {(match[1] or '').lower()}a fan of {thing}"), key_of("taste", thing))


def _habit_every(match: re.Match[str]) -> Fact | None:
    when = re.match(r"(?:every|on) \w+", match[0], re.IGNORECASE)
    rest = match["rest"].strip(" .,")
    if when is None or re.search(r"\b(?:you|your|it|this|that|these|those|same)\b", rest, re.IGNORECASE):
        return None
    return Fact(sentence(f"{third(match['verb'])} {theirs(rest)} {when[0][0].lower()}{when[0][1:]}"))
