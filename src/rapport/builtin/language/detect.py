"""Telling, cheaply, that a text is not English."""

import re
from collections import Counter

from rapport.builtin.language.word_lists import word_set
from rapport.builtin.language.words import words

_SCRIPTS = (
    ("Japanese", re.compile("[\u3040-\u30ff]")),
    ("Korean", re.compile("[\uac00-\ud7af]")),
    ("Chinese", re.compile("[\u3400-\u9fff]")),
    ("Arabic", re.compile("[\u0600-\u06ff]")),
    ("Hebrew", re.compile("[\u0590-\u05ff]")),
    ("Cyrillic script", re.compile("[\u0400-\u04ff]")),
    ("Greek", re.compile("[\u0370-\u03ff]")),
    ("Hindi", re.compile("[\u0900-\u097f]")),
    ("Thai", re.compile("[\u0e00-\u0e7f]")),
)
_LATIN = re.compile(r"[A-Za-zÀ-ž]")
_STOP_WORDS = {
    "German": "der die das und ist nicht ich du wir sie ein eine mit auf für wie was wo wann kannst mir mich bin habe mein meine auch "
    "heute morgen bitte danke hallo guten tag oder aber von zu den dem es geht dir",
    "French": "le la les et est ne pas je tu nous vous un une avec pour sur comment quoi où quand bonjour merci mon ma mes suis ai "
    "aujourd'hui demain aussi mais ou de des du que qui c'est j'ai salut oui",
    "Spanish": "el la los las y es no yo tú nosotros un una con para por cómo qué dónde cuándo hola gracias mi mis soy estoy tengo hoy "
    "mañana también pero de del que muy buenos días como está cual cuál",
    "Portuguese": "o a os as e é não eu tu nós você um uma com para por como onde quando olá obrigado obrigada meu minha sou estou "
    "tenho hoje amanhã também mas de do da que muito bom dia está qual",
    "Italian": "il lo la gli e è non io tu noi voi un una con per su come cosa dove quando ciao grazie mio mia sono ho oggi domani "
    "anche ma di del della che molto buongiorno qual sei",
    "Dutch": "de het een en is niet ik jij je wij zij van met voor op hoe wat waar wanneer hallo dank bedankt mijn ben heb hebben vandaag morgen "
    "ook maar dat naar nog geen moet ga gaat hoi alsjeblieft dus wel",
}  # fmt: skip
_STOP_SETS = {language: word_set(text) for language, text in _STOP_WORDS.items()}
_ENGLISH = word_set(
    """
    the and is are i you we it to of in on for with my your what how when where who why do does did
    can not this that have has be was were am at from about me a an or but so if no as
    """
)
_UNMISTAKABLE = {
    "hola": "Spanish", "gracias": "Spanish", "bonjour": "French", "merci": "French", "salut": "French", "ciao": "Italian",
    "grazie": "Italian", "buongiorno": "Italian", "hallo": "German", "danke": "German", "olá": "Portuguese",
    "obrigado": "Portuguese", "obrigada": "Portuguese",
}  # fmt: skip

NOTE_MARK = "only write English"


def foreign(text: str) -> str | None:
    """Return the language or script of a text that is clearly not English; None if it is, or if it is hard to tell."""
    sample = text[:400]
    latin = len(_LATIN.findall(sample))
    for name, script in _SCRIPTS:
        if len(script.findall(sample)) > max(1, latin):
            return name
    return _by_stop_words(words(sample))


def _by_stop_words(found: list[str]) -> str | None:
    if not found:
        return None
    if len(found) <= 3 and found[0] in _UNMISTAKABLE:
        return _UNMISTAKABLE[found[0]]
    distinct = set(found)
    hits = Counter({language: len(distinct & stops) for language, stops in _STOP_SETS.items()})
    language, count = hits.most_common(1)[0]
    english = len(distinct & _ENGLISH)
    return language if count >= 2 and count > english and count / len(distinct) >= 0.3 else None
