"""Things people ask in other words than they said them: how they ask, how they said it, and whether only the latest counts."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_FOOD = (
    r"\b(?:allerg\w*|intoleran\w*|coeliac|celiac|lactose|gluten|vegan|vegetarian|pescatarian|halal|kosher|diet|diabet\w+)\b"
    r"|\b(?:don't|do not|can't|cannot|never|not allowed to|mustn't|shouldn't) (?:eat|drink)\b"
)
_DOG = r"\b(?:dogs?|pupp(?:y|ies)|retriever|terrier|poodle|labrador|lab|beagle|greyhound|collie|dachshund|spaniel|shepherd|husky|corgi|bulldog|pug|mutt)\b"
_CAT = r"\b(?:cats?|kittens?|tomcat|siamese|tabby)\b"
_PET = rf"{_DOG}|{_CAT}|\b(?:pets?|parrot|parakeet|budgie|bird|hamster|guinea pig|rabbit|bunny|fish|goldfish|snake|tortoise|turtle|horse|pony|lizard|gecko|ferret|rat|mouse)\b"
_FAMILY = (
    r"\b(?:wife|husband|partner|spouse|married|engaged|fianc\w+|girlfriend|boyfriend|mother|father|mum|mom|dad|parents?|sons?|daughters?|kids?|child|children|"
    r"twins|brothers?|sisters?|siblings?|grand\w+|uncles?|aunts?|cousins?|niece|nephew|family)\b"
)
_CHILDREN = (
    r"\b(?:sons?|daughters?|kids?|child|children|twins|triplets|toddler|baby|(?:mother|father|dad|mum|mom|parent) of)\b"
)
_SIBLINGS = r"\b(?:brothers?|sisters?|siblings?|twin)\b"
_SPOUSE = r"\b(?:wife|husband|partner|spouse|married|engaged|fianc\w+|girlfriend|boyfriend|single|divorced|widow\w*)\b"
_WORK = (
    r"\bi(?:'m| am) (?:an?|the) (?!fan\b|bit\b|little\b|lot\b|big\b|huge\b|vegan\b|vegetarian\b|pescatarian\b|morning\b|night\b|mother\b|father\b|mum\b|mom\b|dad\b|parent\b)\w"
    r"|\bi (?:also |now |currently )?(?:work|teach|run an?|manage)\b|\bmy (?:new )?job\b|\bi(?:'m| am) (?:\w+ )?(?:retired|unemployed|working)\b"
)
_LIVES = r"(?<!used to )(?<!not )(?<!don't )(?<!to )\b(?:live|living|based|moved to|moved in|relocated)\b"
_ORIGIN = r"\b(?:from|grew up|born in|raised in|come from|moved to|live|living|based)\b"


@dataclass(frozen=True, slots=True)
class Theme:
    """A question in any wording, and what answers it; the first wording that anything was said in counts."""

    asked: re.Pattern[str]
    said: tuple[re.Pattern[str], ...]
    latest: bool = False
    """True if there is one such thing at a time, so that a newer statement replaces an older one."""

    def find_matches(self, clauses: Iterable[str]) -> list[int]:
        """Return the places of the clauses that answer, in order."""
        stated = list(clauses)
        for wording in self.said:
            if found := [place for place, clause in enumerate(stated) if wording.search(clause)]:
                return found[-1:] if self.latest else found
        return []


def _theme(asked: str, *said: str, latest: bool = False) -> Theme:
    return Theme(
        re.compile(asked, re.IGNORECASE), tuple(re.compile(each, re.IGNORECASE) for each in said), latest=latest
    )


_HAVE = r"\b(?:do|did) (?:i|we) (?:still )?have (?:an?|any|some)? ?"
_CALLED = r"(?:'s|s'|s)?\b[^?]{0,80}\b(?:called|name|names|named)\b"

THEMES: Sequence[Theme] = (
    _theme(r"\b(?:am|are) (?:i|we) (?:\w+ )?(?:allergic|intolerant)(?: (?:to|against))?\b|\bmy (?:\w+ )?(?:allerg\w+|intoleran\w+)|\b(?:have|got) (?:an?|any) (?:\w+ )?(?:allerg\w+|intoleran\w+)",
           r"\b(?:allerg\w*|intoleran\w*|coeliac|celiac)\b"),
    _theme(r"\b(?:what|which|anything|something|things?|foods?)\b[^?]{0,80}\b(?:(?:can't|cannot|shouldn't|mustn't|don't|may not|should not|must not) (?:i|we) (?:eat|drink)|(?:can|should|may|must|do) (?:i|we) not (?:eat|drink)"
           r"|(?:i|we) (?:can't|cannot|shouldn't|mustn't|don't|may not|should not|must not|am not allowed to|'m not allowed to) (?:eat|drink))\b|\bmy diet\b|\b(?:am|are) (?:i|we) (?:an? )?(?:vegan|vegetarian|pescatarian)\b",
           _FOOD),
    _theme(r"\bwhere\b[^?]{0,80}\b(?:from|grow up|grew up|born)\b", _ORIGIN, latest=True),
    _theme(r"\bwhere\b[^?]{0,80}\b(?:live|living|based|home)\b|\bmy (?:home|city|town)\b|\bwhere (?:did|have) (?:i|we) (?:move|moved)\b", _LIVES, _ORIGIN, latest=True),
    _theme(r"\bwhat do i do\b(?: for\b|\s*\?|$)|\bmy (?:job|profession|work|occupation)\b|\b(?:do|did) i work\b|\bwhat(?:'s| is) my line of work\b", _WORK, r"\bi(?:'m| am) (?:an?|the) \w|\bwork\b", r"\bi study\b", latest=True),
    _theme(r"\bhow old am i\b|\bmy age\b", r"\bi(?:'m| am) \d+\b(?! (?:minutes|hours|days|weeks|km|miles))|\byears old\b", latest=True),
    _theme(r"\bmy (?:birthday|date of birth|birth date)\b|\bwhen (?:was|am|were) i born\b", r"\bbirthday\b|\bborn\b", latest=True),
    _theme(rf"\bmy (?:dog|puppy){_CALLED}|\b(?:called|name)\b[^?]{{0,80}}\bmy (?:dog|puppy)\b|{_HAVE}(?:dogs?|pupp\w+)\b", _DOG),
    _theme(rf"\bmy (?:cat|kitten){_CALLED}|\b(?:called|name)\b[^?]{{0,80}}\bmy (?:cat|kitten)\b|{_HAVE}(?:cats?|kittens?)\b", _CAT),
    _theme(rf"\bmy (?:pet|animal)s?\b|{_HAVE}(?:pets?|animals?)\b", _PET),
    _theme(rf"{_HAVE}(?:kids?|child|children|sons?|daughters?)\b|\bhow many (?:kids|children) do (?:i|we)\b|\bmy (?:kids|children){_CALLED}", _CHILDREN),
    _theme(rf"{_HAVE}(?:siblings?|brothers?|sisters?)\b|\bmy siblings\b", _SIBLINGS),
    _theme(r"\bam i (?:married|single|engaged|in a relationship)\b|\bmy (?:partner|spouse|husband|wife)(?:'s name\b| called\b|\s*\?)|\bwho am i married to\b", _SPOUSE, latest=True),
    _theme(rf"\bmy family\b|{_HAVE}family\b", _FAMILY),
    _theme(r"\b(?:don't (?:i|we) like|do (?:i|we) (?:hate|dislike|not like))\b", r"\b(?:hate|dislike|(?:don't|do not|can't stand|cannot stand)\b.*)\b"),
    _theme(r"\b(?:do|did) (?:i|we) (?:like|love|enjoy|prefer)\b|\bmy favou?rite", r"\b(?:(?<!don't )(?<!not )(?:like|love|enjoy|prefer)|favou?rite)\b"),
)  # fmt: skip
