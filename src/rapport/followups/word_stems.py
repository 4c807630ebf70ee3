"""Words, stems and sentences as the planner and the leak check see them: seven languages, no dictionary, linear time."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

KNOWN = 1_000
"""Texts of which it is remembered what was found in them: every turn looks at the same few messages again."""

# Chinese, Japanese, Korean and Thai are written (nearly) without spaces between words.
_UNSPACED = "\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_WORD = re.compile(rf"[{_UNSPACED}]+|[^\W_{_UNSPACED}]+(?:'[^\W_{_UNSPACED}]+)*")
_IS_UNSPACED = re.compile(rf"[{_UNSPACED}]")
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff\ufe0e\ufe0f]")
_QUOTES = str.maketrans(
    {"’": "'", "‘": "'", "ʼ": "'", "´": "'", "`": "'", "“": '"', "”": '"', "„": '"', "«": '"', "»": '"'}
)
_SENTENCE_END = re.compile(r"(?<=[.!?…])[\"')\]*]*\s+|(?<=[。！？؟])[\"')\]*]*\s*|\n+")
_LONGEST_WORD = 40

_SMALL_WORDS = """
    a about above actually after again ain't all almost already also although always am an and another any anymore anything
    anyway are aren't around as at away back be because been before being below besides between both but by came can can't
    cannot come comes could couldn't did didn't do does doesn't doing don't done down during each either else enough even
    ever every everything few first for from further get gets getting give given go goes going gone gonna good got gotta had
    hadn't has hasn't have haven't having he he'd he'll he's hello help her here hers hey hi him his how i i'd i'll i'm i've
    if im in into is isn't it it'd it'll it's its itself just keep kind know last let let's like little ll lot lots made make
    makes many may maybe me mean might mine more most much must my myself need needed needs never new next no nope nor not
    nothing now of off oh ok okay on once one ones only or other our ours out over own perhaps please pretty probably put
    quite rather re really right said same say saying says see seem seems shall she she'd she'll she's should shouldn't since
    so some somehow someone something sometimes soon sort still stuff such sure take tell than thank thanks that that's the
    their theirs them then there there's these they they'd they'll they're they've thing things think thinking this those
    though through to today told tonight tomorrow too try trying under until up us use used using ve very want wanted wants
    was wasn't way we we'd we'll we're we've well were weren't what what's when when's where where's whether which while who
    who's whom whose why will with without won't would wouldn't yeah yep yes yesterday yet you you'd you'll you're you've
    your yours yourself

    aber alle alles als also am an auch auf aus bei bin bis bist da dann das dass dein deine dem den der des die dir doch du
    ein eine einem einen einer er es euch fur gern habe haben hat heute hier ich ihm ihn ihr im in ist ja jetzt kann kannst
    kein keine konnen man mein meine meinem meinen meiner mich mir mit morgen muss mussen nach nein nicht noch nur ob oder
    schon sehr sein sich sie sind so soll sollte und uns unser vom von vor war warum was weil wenn wer werde werden wie wir
    wird wo zu zum zur

    ai alors apres au aujourd'hui aussi avec bien c'est ca car ce cela ces cette dans de demain des dois dois donc du elle en
    encore est et etre eu faire fait il ils j'ai je l'ai la le les leur lui ma mais me mes moi mon n'ai ne non nos notre nous
    on ont ou oui par pas plus pour quand que quel quelle qui quoi sa se ses si son sont suis sur ta te tes toi ton tres tu
    un une va vais vas vos votre vous y

    ahora al algo como con cual cuando de del desde donde el ella ellos en era es esa ese eso esta estaba estan estar este
    esto estoy fue ha hace hacer hasta hay he hoy la las le les lo los manana mas me mi mis mucho muy nada ni no nos nosotros
    o os para pero por porque que se ser si sin sobre solo son soy su sus tambien te tengo tiene todo tu tus un una uno unos
    voy y ya yo

    adesso alla alle anche ancora bene c'e che chi ci come cosa cui da dal dalla degli dei del della delle devo di domani
    dopo dove e essere fare fatto gli ho i il in io l'ho la le lei lo loro lui ma mi mia mie mio molto ne nel nella noi non o
    oggi ogni ora per perche piu poi puo qualcosa quando quella quello questa questo qui se sei sempre si sono sta sto su sua
    sul sulla suo te ti tra tu tua tuo tutto un una uno vado voi

    agora ainda amanha ao aos aqui as ate bem com como da das de dele depois do dos e ela ele em entao era essa esse esta
    estao estou eu fazer foi hoje isso isto ja la lhe mais mas me meu meus minha muito na nao nas nem no nos nossa nosso num
    o onde os ou para pela pelo por porque posso quando que quem se sem ser seu sim so sobre sou sua tambem te tem tenho ter
    teu tive tu tua tudo um uma vai vou voce

    aan al alles als altijd ben bij daar dan dat de deze die dit doe doen door een en er ga gaan geen haar had heb hebben
    heeft hem het hier hij hoe ik in is ja je jij jouw kan kun maar me meer met mij mijn moet morgen na naar nee niet nog nu
    of om omdat ons ook op over te tot u uit uw van vandaag veel voor waar wat we wel werd wie wij wil wordt zal ze zich zij
    zijn zo zou
"""


def word_set(text: str) -> frozenset[str]:
    """Return the words of a list written as prose."""
    return frozenset(text.split())


SMALL_WORDS = word_set(_SMALL_WORDS)
"""Words that say nothing about a subject, without accents."""

_SUFFIXES = (
    ("ies", "y", 5), ("sses", "ss", 5), ("ations", "", 8), ("ation", "", 7), ("ings", "", 6), ("ing", "", 6), ("ied", "y", 5),
    ("ed", "", 5), ("ches", "ch", 6), ("shes", "sh", 6), ("xes", "x", 5), ("ly", "", 6), ("en", "", 6), ("s", "", 4), ("e", "", 4),
)  # fmt: skip
_IRREGULAR = {
    "bought": "buy", "paid": "pay", "sent": "send", "met": "meet", "wrote": "write", "written": "write", "found": "find",
    "kept": "keep", "held": "hold", "lost": "lose", "broke": "break", "broken": "break", "chose": "choose", "chosen": "choose",
    "took": "take", "taken": "take", "built": "build", "taught": "teach", "ran": "run", "sold": "sell", "spoke": "speak",
    "spoken": "speak", "called": "call", "told": "tell", "left": "leave", "has": "have", "had": "have", "children": "child",
    "people": "person", "decision": "decide", "decisions": "decide", "booked": "book", "picked": "pick", "made": "make",
    "fed": "feed", "cleaned": "clean", "did": "do", "done": "do", "does": "do", "went": "go", "gone": "go", "read": "read",
}  # fmt: skip


def plain(text: str) -> str:
    """Return the text in small letters, without accents, invisible characters and fancy quotes; line breaks stay."""
    bare = _INVISIBLE.sub("", text.translate(_QUOTES))
    if bare.isascii():
        return bare.lower()
    apart = unicodedata.normalize("NFKD", bare.casefold())
    return unicodedata.normalize("NFC", "".join(each for each in apart if not unicodedata.combining(each)))


def words(text: str) -> list[str]:
    """Return every word of the text, plain; unspaced scripts come as pairs of characters."""
    return list(_words(text))


@lru_cache(KNOWN)
def _words(text: str) -> tuple[str, ...]:
    found: list[str] = []
    for word in _WORD.findall(plain(text)):
        if _IS_UNSPACED.match(word):
            found.extend(word[i : i + 2] for i in range(max(1, len(word) - 1)))
        else:
            found.append(word[:_LONGEST_WORD])
    return tuple(found)


def content_words(text: str) -> list[str]:
    """Return the words that carry content, plain."""
    return list(_content_words(text))


@lru_cache(KNOWN)
def _content_words(text: str) -> tuple[str, ...]:
    return tuple(word for word in _words(text) if word not in SMALL_WORDS and len(word) > 1)


@lru_cache(maxsize=8192)
def stem(word: str) -> str:
    """Return one form for a word's inflections: `calls`, `calling` and `called` are the same."""
    word = word.removesuffix("'s")
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if len(word) <= 3 or not word.isascii():
        return word
    for suffix, replacement, shortest in _SUFFIXES:
        if word.endswith(suffix) and len(word) >= shortest and not (suffix == "s" and word[-2] in "su"):
            return _undouble(word[: len(word) - len(suffix)] + replacement)
    return word


def _undouble(word: str) -> str:
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsaeiou":
        word = word[:-1]
    return word[:-1] if len(word) > 3 and word.endswith("e") else word


def sentences(text: str) -> list[str]:
    """Return the sentences of a text, in order, none empty."""
    return [part for piece in _SENTENCE_END.split(text) if (part := piece.strip(" \t\"'*_>-•"))]


def shorten(text: str, longest: int) -> str:
    """Return the text on one line, cut at a word if it is too long."""
    line = "".join(each if each.isprintable() else " " for each in text)
    line = " ".join(line.split())
    if len(line) <= longest:
        return line
    cut = line[: longest - 1]
    return (cut.rsplit(" ", 1)[0] if " " in cut[longest // 2 :] else cut) + "…"
