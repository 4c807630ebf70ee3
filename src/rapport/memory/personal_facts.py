"""Rules for who somebody is: name, age, home, work, family, pets, languages, health, food."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TypeAlias

from rapport.memory.grammar import Fact, is_place, join_list, key_of, object_of, sentence, theirs
from rapport.memory.word_lists import (
    ACQUAINTANCES,
    ANIMAL_FOODS,
    CHILDREN,
    CONDITIONS,
    DEMONYMS,
    DIETS,
    DRINKS,
    FIELDS,
    FOODS,
    HEALTH_ADJECTIVES,
    LANGUAGES,
    NOT_NAMES,
    NOT_PLACES,
    PETS,
    PROFESSIONS,
    RELATIVES_OF_MANY,
    RELATIVES_OF_ONE,
    SERVES_NO_MEMORY,
    WORKPLACES,
)

Make: TypeAlias = Callable[[re.Match[str]], "Fact | None"]
Rule: TypeAlias = "tuple[re.Pattern[str], Make]"

CAPITAL = r"(?-i:[A-ZÀ-ÖØ-Þ])[\w'.-]*"
NAME = rf"{CAPITAL}(?: {CAPITAL}){{0,2}}"
PLACE = rf"(?:the )?{CAPITAL}(?:,? (?:(?:de|la|el|am|an der|upon|on|of|of the|del|sur|in|near|and) )?(?:the )?{CAPITAL}){{0,4}}"
AM = r"(?:i'm|i am|im|i've been|i have been)"
HAVE = r"(?:i have|i've had|i've got|i got|i've|we have|we've got|we've)"
ALSO = r"(?:(?:also|really|actually|currently|now|still|already|just|recently|originally|basically|sadly|proudly|in fact) )*"
LATELY = r"(?: (?:now|nowadays|these days|at present|currently|again))?"
SINCE = rf"{LATELY}(?:,? (?:since|for|with|together with|and have) .{{1,80}}|,? in \d{{4}}|,? \w+ years? ago)?"
_NUMBER = r"(?:\d{1,2}|one|two|three|four|five|six|seven|eight|nine|ten|a couple of|several)"
_MONTH = r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
DATE = rf"(?:(?:the )?\d{{1,2}}(?:st|nd|rd|th)?\.?(?: of)? {_MONTH}(?:,? \d{{4}})?|{_MONTH} (?:the )?\d{{1,2}}(?:st|nd|rd|th)?(?:,? \d{{4}})?|\d{{1,2}}[./-]\d{{1,2}}(?:[./-]\d{{2,4}})?|\d{{4}}-\d\d-\d\d)"


def either(words: Iterable[str]) -> str:
    return "(?:" + "|".join(sorted(map(re.escape, words), key=len, reverse=True)) + ")"


def rule(pattern: str, make: Make) -> Rule:
    return re.compile(pattern, re.IGNORECASE), make


def says(predicate: str, key: str | None = None) -> Make:
    """Return the same fact whatever else was said; `{0}` is what the rule's first group found, as somebody else says it."""
    return lambda match: Fact(sentence(predicate.format(*(theirs(group or "") for group in match.groups()))), key)


def _name(match: re.Match[str]) -> Fact | None:
    words = match[1].strip(" .-'").split()
    if not words or any(word.lower() in NOT_NAMES or not re.fullmatch(r"[^\W\d_][\w'.-]*", word) for word in words):
        return None
    named = " ".join(word[:1].upper() + word[1:] for word in words)
    return Fact(f"The user's name is {named}.", "name")


def _bare_name(match: re.Match[str]) -> Fact | None:
    word = match[1].lower()
    if word in DEMONYMS | LANGUAGES | DIETS | HEALTH_ADJECTIVES or word.endswith(
        ("ing", "ish", "ful", "less", "ous", "ic", "able", "ible")
    ):
        return None
    return _name(match) if not (word.endswith("ed") and len(word) > 6) else None


def _home(match: re.Match[str]) -> Fact | None:
    verb, preposition, place = match[1].lower(), match[2].lower(), match[3].strip(" .,")
    if place.lower() in NOT_PLACES | FIELDS:
        return None
    if not is_place(re.sub(r"^the ", "", place)):
        if match[0][:1] not in "iw" or re.match(r"(?:the|a|an|my|our|your|his|her|this|that)\b", place):
            return None
        place = place.title()
    has_moved = verb.endswith(("moved", "relocated"))
    return Fact(sentence(f"{'moved' if has_moved else 'lives'} {preposition} {place}"), "home")


def _dwelling(match: re.Match[str]) -> Fact:
    return Fact(sentence(f"lives {theirs(match[1])}"), "household")


def _profession(match: re.Match[str]) -> Fact | None:
    before, noun, after = match[1] or "", match[2], theirs(match[3] or "")
    if re.search(
        r"\b(?:good|bad|great|terrible|lousy|natural|born|fast|slow|heavy|big|lone|sore|real|total|such|decent|horrible)\b",
        before,
        re.IGNORECASE,
    ):
        return None
    role = f"{before}{noun}"
    article = "an" if role[:1].lower() in "aeiou" else "a"
    return Fact(sentence(f"is {article} {role}{after}"), "work")


def _workplace(match: re.Match[str]) -> Fact | None:
    preposition, place = match[1].lower(), object_of(match[2])
    if place is None or re.match(r"(?:my|the) (?:home|own)\b|home\b", place):
        return None
    named = is_place(place) or re.match(rf"(?:an?|the|my) (?:[\w'-]+ ){{0,3}}{either(WORKPLACES)}\b", place)
    if not named and not (preposition == "in" and place.lower() in FIELDS):
        return None
    return Fact(sentence(f"works {preposition} {theirs(place)}"), "work")


def _relative(match: re.Match[str]) -> Fact | None:
    relative, named = match[1].lower(), match[2].strip(" .,")
    if any(word.lower() in NOT_NAMES for word in named.split()):
        return None
    key = relative if relative in RELATIVES_OF_ONE else None
    return Fact(f"The user's {match[1]} is called {named}.", key)


def _relative_is(match: re.Match[str]) -> Fact | None:
    return None if match[2].lower() in DEMONYMS | DIETS | LANGUAGES else _relative(match)


def _conditions(match: re.Match[str]) -> Fact | None:
    parts = [
        re.sub(r"^(?:severe|chronic|mild|seasonal|bad) ", "", part.strip())
        for part in re.split(r",|\band\b", match[1].lower())
    ]
    known = all(part in CONDITIONS for part in parts if part)
    return Fact(sentence(f"has {match[1]}")) if known else None


def _of_relative(match: re.Match[str]) -> Fact | None:
    tail = object_of(match[3].split(" and ")[0]) if match[2].lower().startswith(("lives", "works")) else match[3]
    return Fact(f"The user's {match[1]} {match[2].lower().strip()} {theirs(tail).strip(' .,')}.") if tail else None


def _pet(match: re.Match[str]) -> Fact | None:
    article, pet, named = match[1], match[2], match[3]
    return Fact(sentence(f"has {article} {pet}" + (f" called {named.strip(' .')}" if named else "")))


def _languages(match: re.Match[str]) -> Fact | None:
    spoken = [
        word.strip()
        for word in re.split(
            r",|\band\b|&|\ba (?:bit|little)(?: of)?\b|\bsome\b|\bfluent(?:ly)?\b|\bas well as\b", match[2]
        )
        if word.strip()
    ]
    if not spoken or any(word.lower() not in LANGUAGES for word in spoken):
        return None
    names = [word.upper() if word.lower() in ("asl", "bsl") else word.capitalize() for word in spoken]
    return Fact(sentence(f"{'does not speak' if match[1] else 'speaks'} {join_list(names)}"))


def _age(match: re.Match[str]) -> Fact | None:
    years = int(match[1])
    is_bare = not match[2]
    return Fact(sentence(f"is {years} years old"), "age") if (13 if is_bare else 4) <= years <= 110 else None


def _allergy(match: re.Match[str]) -> Fact | None:
    thing = object_of(match[1])
    if thing is None or thing.lower() in SERVES_NO_MEMORY or re.search(r"\b(?:my|our)\b", thing, re.IGNORECASE):
        return None
    return Fact(sentence(f"is allergic to {thing}"), key_of("allergy", thing))


def _has_allergy(match: re.Match[str]) -> Fact | None:
    kind = match[1].lower()
    article = "an" if kind[0] in "aeiou" else "a"
    return None if object_of(kind) is None else Fact(sentence(f"has {article} {kind} allergy"), f"allergy:{kind}")


def _no_food(match: re.Match[str]) -> Fact | None:
    verb, thing = match[1].lower(), object_of(match[2])
    known = FOODS if verb == "eat" else DRINKS
    parts = [
        part.strip().lower() for part in re.split(r",|\bor\b|\band\b|\bany\b|\bmuch\b", thing or "") if part.strip()
    ]
    if thing is None or not parts or any(part not in known for part in parts):
        return None
    return Fact(sentence(f"doesn't {verb} {thing}"), key_of(verb, thing))


def _eats_again(match: re.Match[str]) -> Fact | None:
    food = match[1].lower()
    if food in ANIMAL_FOODS | {"everything", "anything"}:
        return Fact(sentence(f"eats {food} again"), "diet")
    return Fact(sentence(f"eats {food} again"), key_of("eat", food)) if food in FOODS else None


def _gave_up(match: re.Match[str]) -> Fact:
    return Fact(sentence(f"is no longer {match[1].lower()}"), "diet")


def _was_born(match: re.Match[str]) -> Fact:
    if re.fullmatch(r"\d{4}", match[2]):
        return Fact(sentence(f"was born in {match[2]}"), "birth year")
    return Fact(sentence(f"was born in {match[2].strip(' .,')}"), "birthplace")


_RELATIVES = either(RELATIVES_OF_ONE | RELATIVES_OF_MANY)
_PEOPLE = either(RELATIVES_OF_ONE | RELATIVES_OF_MANY | ACQUAINTANCES)
_OLDER = r"(?:(?:older|younger|elder|little|big|twin|late|eldest|oldest|youngest|only|ex-|new|old|dear) ?)?"
_LEAST_PET = rf"(?:[\w'-]+ ){{0,2}}?{either(PETS)}"
_LEFT = either(DIETS)
_KNOWN_HEALTH = either(CONDITIONS)

RULES: tuple[Rule, ...] = (
    # Who they are
    rule(rf"(?:my (?:full |first |real )?name(?:'s| is)|{AM} called|i go by|i'm known as|the name's) ({NAME}|[^\W\d_][\w'-]{{1,30}})(?: from {PLACE}.*)?$", _name),
    rule(rf"(?:you can |please |just |people |everyone |everybody |my friends |friends )*(?:call|calls) me ({NAME})$", _name),
    rule(rf"{AM} ({CAPITAL})(?:,? from {PLACE})?$", _bare_name),
    rule(rf"{AM} {ALSO}(\d{{1,3}})( years old| years of age| yrs old| y/?o)?(?: now)?$", _age),
    rule(rf"i (?:just )?turned (\d{{1,3}})( in {_MONTH}|$)", _age),
    rule(rf"my birthday(?:'s| is|'s on| is on| falls on) (?:on )?({DATE})$", says("was born on {0}", "birthday")),
    rule(rf"i was born on ({DATE})$", says("was born on {0}", "birthday")),
    rule(rf"i was born (?:and (?:raised|grew up) )?(in) (\d{{4}}|{PLACE})$", _was_born),
    rule(rf"{AM} {ALSO}({either(DEMONYMS)})$", lambda match: Fact(sentence(f"is {match[1].title()}"), "nationality")),
    # Where they live
    rule(rf"(?:i|we) {ALSO}(live|have moved|moved|relocated) (in|near|to|outside|close to) ({PLACE}|[a-zà-ÿ]+(?: [a-zà-ÿ]+)?){SINCE}$", _home),
    rule(rf"(?:i've|we've) {ALSO}(moved|relocated) (to) ({PLACE}){SINCE}$", _home),
    rule(rf"(?:i've|we've|i have|we have) {ALSO}(lived|been living) (in|near) ({PLACE}) (?:since|for|all) .{{2,40}}$", _home),
    rule(rf"{AM} {ALSO}(living|based) (in|near|outside) ({PLACE}){SINCE}$", _home),
    rule(rf"{AM} {ALSO}(?:originally )?from (?!the\b)({PLACE})(?: originally)?$", says("is from {0}", "origin")),
    rule(rf"(?:i|we) grew up in ({PLACE})$", says("grew up in {0}", "childhood home")),
    rule(r"(?:i|we) live (alone|by myself|on my own|with (?:my|two|three|four|five|a|an) [\w' -]{3,40}|(?:in|on) (?:a|an|the) (?:[\w-]+ ){0,2}(?:flat|apartment|house|studio|cottage|farm|houseboat|boat|van|village|town|city|countryside|suburbs|dormitory|dorm|camper van|tiny house)(?: (?:in|near|with|on|outside) [\w' -]{3,40})?)$", _dwelling),
    # Work
    rule(rf"(?:{AM} {ALSO}(?:working as )?|i {ALSO}work {ALSO}as |my job is (?:being )?|i make my living as )an? ((?:[\w-]+ ){{0,3}}?)({either(PROFESSIONS)})((?: (?:at|for|in|with|from|by) .{{2,60}})?)$", _profession),
    rule(rf"(?:i {ALSO}work|{AM} {ALSO}(?:working|employed)) (at|for|in) (.{{2,60}}?){LATELY}$", _workplace),
    rule(rf"{AM} {ALSO}(retired|self-employed|unemployed|a freelancer|between jobs|on parental leave|on maternity leave)$", says("is {0}", "work")),
    rule(rf"i {ALSO}(?:run|own) (an? (?:small |little )?[\w' -]{{0,20}}(?:bakery|caf[eé]|shop|store|restaurant|company|business|farm|hotel|bar|agency|startup|start-up|studio|practice|salon|bookshop|garage|brewery|vineyard|nursery)(?: (?:in|called) .{{2,40}})?)$", says("runs {0}", "work")),
    rule(r"i (?:also )?teach ((?!you\b|him\b|her\b|them\b|my\b)[\w' ,-]{3,40})$", says("teaches {0}", "work")),
    rule(rf"(?:i|{AM}) (?:{ALSO}study|{ALSO}studying) ((?!for\b|hard\b|a lot\b|all\b|too\b|now\b|with\b|in\b|at the\b|the\b|every\b)[\w' ,&-]{{3,50}})$", says("studies {0}", "studies")),
    rule(r"i (?:usually |mostly |always |only )?work ((?:nights|night shifts|shifts|part-time|part time|full-time|full time|from home|remotely|weekends|early shifts)(?: (?:on|at|every|as|and) [\w' -]{3,30})?)$", says("works {0}", "working hours")),
    # Family and animals
    rule(rf"(?:my|our) ({_OLDER}{_PEOPLE})(?:'s name is| is called| is named|'s called|'s named| goes by) ({NAME})$", _relative),
    rule(rf"(?:my|our) ((?:[\w-]+ )?{either(PETS)})(?:'s name is| is called| is named|'s called|'s named| goes by) ({NAME})$", _relative),
    rule(rf"(?:my|our) ({_OLDER}{_RELATIVES}(?:,? {NAME},?)?) (lives in|works as|works at|works for|is allergic to|is an?|is (?=\d)|has (?=(?:{_KNOWN_HEALTH})))\s*((?<=allergic to ).{{3,40}}|(?<=in ){PLACE}|(?<=as ).{{3,40}}|(?<=at ).{{3,40}}|(?<=for ).{{3,40}}|(?:[\w-]+ ){{0,2}}{either(PROFESSIONS)}|(?<=is )\d{{1,3}}(?: years old)?|{_KNOWN_HEALTH})$", _of_relative),
    rule(rf"(?:my|our) ({_OLDER}{_RELATIVES}(?:,? {NAME},?)?) (is) ({either(DIETS | HEALTH_ADJECTIVES)})$", _of_relative),
    rule(rf"(?:my|our) ({_OLDER}{_PEOPLE})'s (birthday is)(?: on)? ({DATE})$", lambda match: Fact(f"The user's {match[1]}'s birthday is {match[3]}.", f"birthday of {match[1].lower()}")),
    rule(rf"(?:my|our) ({_OLDER}{_PEOPLE}),? ({NAME}),? (?:and i|is|was|has|had|lives|works|loves|likes|hates|plays|studies|goes|wants|will|just)\b.*$", _relative),
    rule(rf"(?:my|our) ({_OLDER}{_PEOPLE}),? ({NAME})$", _relative),
    rule(rf"(?:my|our) ({_OLDER}{_PEOPLE}|(?:[\w-]+ )?{either(PETS)})(?: is|'s) ({CAPITAL})$", _relative_is),
    rule(rf"(?:my|our) ((?:[\w-]+ )?{either(PETS)}),? ({NAME}),? (?:is|has|loves|likes|hates|eats|sleeps|weighs)\b.*$", _relative),
    rule(rf"(?:my|our) ({either(CHILDREN)}) are (called|named) ({NAME}(?:, {NAME})*,? and {NAME})$", lambda match: Fact(f"The user's {match[1]} are called {match[3]}.")),
    rule(rf"{HAVE} (an?|{_NUMBER}|no) ((?:[\w'-]+ ){{0,2}}?(?:{_LEAST_PET}|{either(CHILDREN)}|{_OLDER}(?:sister|brother|son|daughter|child|kid|twin|stepson|stepdaughter|grandson|granddaughter|girlfriend|boyfriend|wife|husband|baby|baby girl|baby boy)))(?:,? (?:called|named|whose name is) ({NAME}))?$", _pet),
    rule(rf"{HAVE} ({_NUMBER}|an?) ((?:[\w'-]+ ){{0,2}}?(?:{_LEAST_PET}|{either(CHILDREN)})),? (?:called|named) ({NAME} and {NAME}|{NAME}(?:, {NAME})+,? and {NAME})$", _pet),
    rule(rf"(?:i|we) (?:just |recently )?(?:adopted|got) (an?) ({_LEAST_PET}) (?:called|named) ({NAME})$", _pet),
    rule(r"(?:i|we) don't have (?:any )?(kids|children|pets|siblings|a car|a tv|a driving licen[cs]e|a driver's licen[cs]e)$", says("doesn't have {0}")),
    rule(rf"{AM} {ALSO}(?:an? |the )?(?:single |proud )?((?:stay-at-home )?(?:mother|father|mom|mum|dad|parent|grandmother|grandfather)) (of (?:{_NUMBER}|twins|triplets)(?: [\w-]+)?)$", says("is the {0} {1}")),
    rule(rf"(?:{AM} {ALSO}|we're )(married|divorced|widowed|engaged|happily married)((?: to {NAME})?)(?: (?:since|for) .{{2,20}})?$", says("is {0}{1}", "marital status")),
    # Languages
    rule(r"i (?:can )?(?:also )?(?:(don't|do not|can't) )?speak (?:fluent |a (?:bit|little) (?:of )?|some |only )?([\w ,&-]{4,60})$", _languages),
    rule(rf"{AM} ()(?:also )?fluent in ([\w ,&-]{{4,60}})$", _languages),
    rule(rf"my (?:native language|first language|mother tongue)(?: is|'s) ({either(LANGUAGES)})$", lambda match: Fact(f"The user's native language is {match[1].capitalize()}.", "native language")),
    rule(rf"{AM} an? native ({either(LANGUAGES)}) speaker$", lambda match: Fact(f"The user's native language is {match[1].capitalize()}.", "native language")),
    # Health and food
    rule(rf"{AM} {ALSO}(?:severely |very |highly |deathly |badly |slightly )?allergic to (.{{3,80}})$", _allergy),
    rule(rf"{HAVE} (?:an? )?(?:severe |bad |serious |mild |strong )?(?!severe|bad)([\w-]+(?: [\w-]+)?) allergy$", _has_allergy),
    rule(rf"(?:{HAVE}|i {ALSO}suffer from|i(?:'ve| have| was|'ve been| have been) (?:recently |just )?(?:been )?diagnosed with|i live with) {ALSO}([\w', -]{{2,70}}){SINCE}$", _conditions),
    rule(rf"{AM} {ALSO}((?:an? )?(?:type [12] )?{either(HEALTH_ADJECTIVES)}(?: in (?:my|one|the) (?:left |right )?(?:ear|eye))?)$", says("is {0}")),
    rule(r"i (use a wheelchair|wear hearing aids|wear glasses|wear a hearing aid)$", lambda match: Fact(sentence(re.sub(r"^\w+", lambda verb: verb[0].lower() + "s", match[1])))),
    rule(rf"{AM} {ALSO}(?:(?:an?|a strict|strictly|a lifelong|a committed|fully|completely|pretty much) )*((?:mostly )?{either(DIETS)})(?: (?:since|for) .{{2,30}})?{LATELY}$", says("is {0}", "diet")),
    rule(rf"(?:i (?:follow|keep to|stick to|eat)|{AM} on) an? ((?!strict )[\w-]+(?: [\w-]+)?) diet$", says("follows a {0} diet", "diet")),
    rule(rf"{AM} (?:no longer (?:an? )?(?={_LEFT})|not (?:an? )?(?={_LEFT} any ?(?:more|longer)$))({_LEFT})\b.*$", _gave_up),
    rule(rf"(?:i|i've|i have) {ALSO}(?:stopped|quit|gave up|given up) being (?:an? )?({_LEFT}){LATELY}$", _gave_up),
    rule(rf"(?:i {ALSO}(?:do )?(?:eat|eating)|(?:i|i've|i have) {ALSO}(?:started|begun|began) eating|{AM} {ALSO}eating) ([\w' -]{{3,20}}?) again(?: now| these days)?$", _eats_again),
    rule(rf"(?:{AM}|i eat) {ALSO}(gluten-free|dairy-free)$", says("eats {0}", "diet")),
    rule(rf"{AM} {ALSO}(doing|finishing|starting) ((?:an?|my) (?:PhD|doctorate|master's degree|master's|bachelor's degree|bachelor's|degree|apprenticeship)(?: (?:in|at|as) [\w' -]{{3,40}})?)$", says("is {0} {1}", "studies")),
    rule(rf"{HAVE} (an? (?:PhD|doctorate|master's degree|master's|bachelor's degree|bachelor's|degree|diploma) in [\w' -]{{3,40}})$", says("has {0}", "degree")),
    rule(r"i (?:only )?(keep kosher|eat halal)$", lambda match: Fact(sentence("keeps kosher" if "kosher" in match[1].lower() else "eats halal"), "diet")),
    rule(r"i (?:really |absolutely )?(?:don't|do not|never|can't|cannot) (eat|drink) (?:any )?(.{3,60})$", _no_food),
    rule(r"i (don't|do not) smoke$", says("doesn't smoke", "smoking")),
    rule(r"i smoke$", says("smokes", "smoking")),
    rule(r"i (?:don't|do not) drink$", says("doesn't drink alcohol", "drink:alcohol")),
    rule(r"my blood type is ((?:a|b|ab|o)[+-]?(?: (?:positive|negative))?)$", lambda match: Fact(f"The user's blood type is {match[1].upper() if len(match[1]) < 4 else match[1]}.", "blood type")),
)  # fmt: skip
