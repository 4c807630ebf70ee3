"""Find what a conversation leaves open: a question nobody answered, a decision to make, something somebody set out to do (AUTO-1)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from rapport.followups.word_stems import KNOWN, content_words, plain, sentences, stem, word_set, words

_LONGEST = 4_000
"""Characters of a message that are looked at, from its end."""
_MOST_SENTENCES = 40
_SHORT_TAIL = 7
"""Words of a remark that may stand after a question without answering it: "Take your time."."""
_LONGEST_TAIL = 2
"""Sentences that may stand after it at all."""
_QUESTION_MARKS = ("?", "？", "؟")
_TO_YOU = word_set(
    "you your you're you've you'd u du dir dich dein deine ihr ihnen tu te ton ta tes vous votre vos tus usted su ti tuo tua voce seu sua je jij jou jouw u uw"
)
_QUOTED = re.compile(
    r'"[^"\n]{1,400}"|“[^”\n]{1,400}”|„[^“”\n]{1,400}[“”]|«[^»\n]{1,400}»|^\s*>.*$|```.*?```', re.MULTILINE | re.DOTALL
)

_HOLLOW = word_set(
    """
    ago along appeal appeals best choice choose decide decision lean leaning option options prefer regret speak speaks better bring brings brought bother bothers care cause caused change changed changes clear
    compare concern day days deal depend depends describe detail details different difference difficult easier easiest easy effect
    end ended ends exactly expect explain far feel feeling feelings feels find fit fits follow follows forward found get got
    great happen happened happening happens hard harder hardest hear held help helped helps hold holding hope hoping idea ideal ideas
    important instead interesting involve learn learned least leave leaves led left likely long look looking looks makes
    matter matters meaning means meant mind moment motivated next open outcome part particular past picture plan planning plans play
    plays point points possible prepare problem react reason reasons result rest reaction say says sense share side sides situation
    special specific specifically stand stands start started starting starts step steps story success surprise surprised surprising
    sway talk tell thought thoughts time tough tried true turn turned type weigh went wish won worst worth
    passiert passierte folgt daraus weiter geht geschichte bedeutet genau steckt dahinter kommt kam gefuhl
    histoire suite passe arrive ensuite signifie sens historia sigue paso pasa significa sientes succede dopo storia
    aconteceu acontece segue gebeurt gebeurde volgt verhaal betekent
    """
)
"""Content words that go with any subject."""
_PARTICULAR = word_set(
    "when where who whom whose many much often old which wann wo wer welche quand ou qui cuando donde quien cuanto quando dove chi"
    " onde quem wanneer waar wie"
)

# Questions that are asked out of courtesy, or that nobody expects an answer to.
_COURTESY = re.compile(
    r"^(?:so|well|and|or|but|now|anyway|okay|ok|then|oh|hey|hi|hello|also|otherwise|by the way)?[, ]*(?:"
    r"(?:is there |was there |do you (?:have|need|want) |did you (?:have|need|want) "
    r"|would you like )?(?:any ?thing|something|some thing|any(?: other| more| further)? questions?)(?: else"
    r"| more| other)?\b.*"
    r"|(?:how|what|where|when) (?:can|may|could|else can|might|should|shall) i (?:help|assist|do|be of"
    r"|support)\b.*|(?:can|may|could|shall|should) i (?:help|assist|be of)\b.*|what can i do for you\b.*"
    r"|need (?:any )?(?:help|more|anything)\b.*|(?:would you like|do you want|do you need)(?: any)?(?: more"
    r"| further)? (?:help|details|information|examples?|tips)\b.*"
    r"|(?:does|did|do|is|was) (?:that|this|it|these) (?:help|make sense|work for you|sound (?:good|right|ok"
    r"|okay)|answer your question|clear|useful|ok|okay|alright|what you (?:meant|needed|wanted))\b.*|make sense"
    r"|sounds? good|deal|ok(?:ay)?|right|no|yes|see|really|ready|agreed|fair enough|is that so|oh really"
    r"|how are (?:you|things|u)\b.*|how(?:'s| is| was|'s| has) (?:it going|your (?:day|evening|morning|week"
    r"|weekend)|life|everything)\b.*|how do you do|what'?s (?:up|new|on your mind|going on)\b.*|what(?:'s| is"
    r"| brings| would you like to| do you want to| shall we| should we| can we)(?: you here)?(?: talk| chat"
    r"| discuss| do)?(?: about)?(?: today)?|what would you like to (?:know|talk|chat|discuss|do|hear)\b.*"
    r"|how(?: are you| do you)(?: feel| feeling| doing)(?: today)?"
    r"|(?:would|do|did) you (?:like|want|care) to (?:know|hear|learn|see|talk|chat|go|try)\b(?: more| on"
    r"| about it| further| something| anything).*|(?:(?:shall|should) (?:i|we)|would you like me to"
    r"|do you want me to) (?:go on|continue|elaborate"
    r"|explain(?: more| further)?|move on)\b.*|want (?:me to )?(?:know|hear|go on|continue|more|elaborate"
    r"|explain)\b.*|interested|curious|and you|you|what about you|how about you"
    r"|(?:isn'?t|aren'?t|wasn'?t|don'?t|doesn'?t|didn'?t|won'?t|wouldn'?t|can'?t|haven'?t|hasn'?t) (?:it|that"
    r"|they|you|we|he|she|this)(?: \w+){0,3}|who(?: knows| would have thought| doesn'?t\b.*| wouldn'?t\b.*"
    r"| can (?:say|tell|blame)\b.*| could (?:say|resist|blame)\b.*)|why not|how (?:cool|great|nice|funny|sweet"
    r"|lovely|exciting|crazy|weird|amazing) is (?:that|this|it)|what (?:could|can) (?:possibly )?go wrong"
    r"|what more (?:could|can)\b.*|you know|know what|guess what|what do you know|what'?s not to (?:like|love)"
    r"|can you (?:believe|imagine)\b.*"
    r"|kann ich (?:dir|ihnen|euch|sonst|noch)\b.*(?:helfen|tun).*|wie kann ich\b.*|(?:hast du |haben sie "
    r"|gibt es )?(?:sonst )?noch (?:et)?was\b.*|noch fragen|oder|nicht wahr|wie geht(?:'?s| es)\b.*"
    r"|was gibt(?:'?s| es) neues"
    r"|(?:puis[- ]je|est-ce que je peux|comment puis[- ]je|je peux)\b.*aider.*|(?:y a-t-il |as-tu "
    r"|avez-vous )?autre chose\b.*|ca va\b.*|n'est-ce pas|d'accord|comment (?:vas-tu|allez-vous|ca va)\b.*"
    r"|\W*(?:(?:en que|como) )?(?:te |le |les )?(?:puedo|podria)\b.*ayudar.*|\W*(?:hay |necesitas "
    r"|quieres )?algo mas\b.*|\W*verdad|\W*no|\W*que tal\b.*|\W*como estas\b.*"
    r"|(?:come |in cosa )?(?:ti |la |vi )?posso\b.*aiutar.*|(?:c'e |hai bisogno di |ti serve )?(?:qualcos'?altro"
    r"|altro)\b.*|vero|come (?:va|stai)\b.*"
    r"|(?:como |em que )?posso\b.*ajudar.*|(?:precisa de |quer )?mais (?:alguma coisa|algo)\b.*|algo mais\b.*"
    r"|certo|tudo bem\b.*|como (?:vai|esta)\b.*"
    r"|(?:waarmee |hoe )?kan ik\b.*(?:helpen|doen).*|(?:is er )?(?:verder )?nog iets\b.*|toch|hoe gaat het\b.*"
    r")[ ?!.]*$"
)
_ASKS_TAG = re.compile(
    r"(?:,|-|–|—) (?:right|no|yes|ok|okay|huh|eh|isn't it|aren't you|don't you think|you know|oder|nicht wahr|ne"
    r"|gell|verdad|vero|n'est-ce pas|toch|he)\W*$"
)
_ANSWERS_ITSELF = re.compile(
    r"^(?:because|simple|simply|easy|yes|no|well|exactly|it|that's|that is|the answer|not really|nothing"
    r"|everything|absolutely|of course|since|weil|parce|porque|perche|omdat)\b"
)

_I = r"(?:i|we)"
_SUBJECT_BEFORE = re.compile(
    r"\b(?:he|she|they|you|it|who|my \w+|his \w+|her \w+|their \w+|our \w+|the \w+|this \w+|that \w+)(?: (?:also"
    r"|just|still|really|always|probably|said|says|told me|thinks|that|is|are|was|seems|feels|,))* *$"
)
_DECISIONS = tuple(
    re.compile(pattern)
    for pattern in (
        (
            rf"\b(?:should|shall|do|would) {_I} (?:rather )?(?:better )?\w+.* or (?!so\b|something\b|anything\b"
            rf"|whatever\b|what\b|else\b)\w+"
        ),
        (
            rf"\bshould {_I} (?:really |just |maybe |still )?(?:take|accept|quit|move|leave|buy|sell|marry|break up"
            rf"|go back|apply|switch|stay|change|resign|rent|adopt|divorce|propose|enroll|sign|drop out|go for"
            rf"|say yes|invite|tell (?:him|her|them)|forgive|retire)\b"
        ),
        (
            rf"\b(?:{_I}(?:'m| am|'re| are)? )?(?:still |just |really |simply )?(?:can'?t|can ?not|cannot|could not"
            rf"|couldn'?t|don'?t know how to|struggl\w+ to|trying to|try to|hard to|difficult to"
            rf"|unable to) (?:really |quite )?(?:decide|choose|pick|make up my mind|settle on)\b"
        ),
        (
            rf"\b{_I}(?:'ll| will)? (?:still )?(?:need to|have to|must|got to|gotta|should|ought to) (?:really "
            rf"|finally |just )?(?:decide|choose|pick (?:one|between)|make (?:a|the|this|that"
            rf"|my) (?:\w+ )?(?:decision|choice)|make up my mind|think (?:it over|about it|it through))\b"
        ),
        (
            r"\b(?:thinking|wondering|debating|considering|unsure|not (?:so |really |quite )?sure|undecided|torn"
            r"|mulling|agonis\w+|agoniz\w+|hesitating|unclear|deciding|can'?t tell)(?: about| over| on)? (?:whether"
            r"|if|between|which)(?: (?:(?:i|we) (?:should|ought|want|really|will|'ll|can|need|'d)|to|one|of|the|a|my"
            r"|two|three|\w+ and|\w+ or|\w+ing)\b)"
        ),
        r"\b(?:between) (?:\w+ ){1,5}and \w+.{0,40}\b(?:can'?t|hard|decide|torn|unsure|choose)",
        (
            rf"\b{_I} (?:really |still |just )?(?:don'?t"
            rf"|do not) (?:really )?know (?:which (?:\w+ ){{0,2}}to (?:accept|choose"
            r"|pick|take|buy|go for|keep)|whether (?:to|i should|we should)|if (?:i|we) should)\b"
        ),
        (
            r"\b(?:torn between|on the fence|in two minds|of two minds|going back and forth|back and forth (?:on"
            r"|about|between)|still undecided|haven'?t (?:yet )?(?:decided|made up my mind)"
            r"|have not (?:yet )?decided|not decided yet|no idea (?:which|whether)|weighing (?:my|the|up)"
            r"|big decision|tough (?:choice|decision|call)|hard (?:choice|decision))\b"
        ),
        (
            rf"\b{_I}(?:'ll| will| need to| have to| want to| must)?(?: just)? (?:think about it|think it over"
            rf"|sleep on it)\b"
        ),
        (
            r"\bsoll(?:te)? ich\b.* oder\b|\bkann mich (?:einfach |noch )?nicht entscheiden\b|\b(?:uberlege|weiss"
            r"|bin)(?: \w+){0,4},? ob ich\b|\bschwanke\b|\bunentschlossen\b|\bmuss mich (?:noch |bald "
            r"|bis \w+ )*entscheiden\b"
        ),
        (
            r"\bj'hesite\b|\b(?:n'arrive|arrive) pas a (?:me decider|choisir|decider)\b|\b(?:dois"
            r"|devrais)[- ]je\b.* ou\b|\bne sais pas si je (?:dois|devrais|vais|prends)\b"
            r"|\bje dois (?:me )?(?:decider|choisir)\b"
        ),
        (
            r"\bno (?:me decido|puedo decidir\w*|logro decidir\w*)\b|\bno se si (?:debo|deberia|\w+[aei]r(?:me)?)\b"
            r"|\bdeberia \w+.* o \w+|\btengo que (?:decidir|elegir)\w*"
        ),
        (
            r"\bnon (?:riesco a|so) (?:decider\w+|sceglier\w+)\b|\bnon so se (?:dovrei|devo|\w+[aei]re)\b"
            r"|\bdovrei \w+.* o \w+|\bdevo (?:decider|sceglier)\w+"
        ),
        (
            r"\bnao (?:consigo|sei) (?:me )?(?:decidir|escolher)\b|\bnao sei se (?:devo|deveria|vou|\w+[aei]r)\b"
            r"|\bdevo \w+.* ou \w+|\b(?:tenho que|preciso) (?:decidir|escolher)\b"
        ),
        (
            r"\b(?:zal|moet) ik\b.* of\b|\bkan (?:maar )?niet (?:kiezen|beslissen)\b|\btwijfel\b(?=.*\b(?:of|tussen"
            r"|over)\b)|\bweet niet of ik\b|\bmoet (?:nog )?(?:kiezen|beslissen)\b"
        ),
    )
)
_DECIDED = re.compile(
    r"\b(?:i|we)(?:'ve| have)?(?: finally| just| already| now)* (?:decided|chose|chosen|picked|made up (?:my"
    r"|our) minds?|made (?:my|a|the) (?:decision|choice)|settled on|went (?:with|for)|signed|accepted|declined"
    r"|turned it down|took (?:it|the)|bought)\b(?! whether| if)"
    r"|\b(?:i'll|i will|i'm going to|i'm|going to|we'll) (?:take it|go(?:ing)? (?:with|for)"
    r"|stay(?:ing)?(?: then)?$|stick(?:ing)? with|do it|accept|decline)|\b(?:in the end|decision made"
    r"|that settles it|easy choice|no[- ]brainer)\b|\bbut then i\b"
    r"|\b(?:habe mich|ich hab mich|haben uns) .{0,40}entschieden\b|\bj'ai (?:decide|choisi)\b|\b(?:he"
    r"|ya) decidi(?:do)?\b|\bho (?:deciso|scelto)\b|\bdecidi\b|\bheb (?:besloten|gekozen)\b"
)

_INTENDS = re.compile(
    rf"(?:\b{_I}(?: really| still| just| also| probably| definitely| actually| then| now| first| finally| do)*"
    r"(?:'ll| will| need to| have to| must| should| ought to| gotta| got to|'ve got to| have got to"
    r"|'ve still got to| am going to|'m going to|'re going to| are going to|m gonna|'m gonna| am gonna| gonna"
    r"| plan to| plan on|'m planning to| am planning to| intend to|'m supposed to| am supposed to|'m about to"
    r"| promised to| promised(?: \w+){1,2} to| better|'d better| had better| aim to)"
    r"|^(?:ok(?:ay)? |well |so |but |and |still |just |now |first |then )*(?:gotta|got to|have to|need to|gonna"
    r"|going to))"
    r"(?: also| still| really| just| probably| definitely| now| first| finally| then| quickly| try to| try and"
    r"| go and| actually| make sure to| remember to| be able to)*"
    r" (?P<deed>(?P<verb>[a-z]+)\b.*)"
)
_IS_NO_TASK = word_set(
    """
    be been never not no nothing have has say admit know think see understand let love like miss wait go sleep rest die live
    feel believe hope guess agree remember forget wonder mention thank apologize apologise confess ask disagree point assume
    look keep stay want need hate laugh cry enjoy get become stop explain tell hear talk chat speak add note stress warn
    always ever only wish decide choose dream happen seem appear mean mind eat drink all both
    """
)
# These are tasks with the right words after them, although the verb alone is none.
_IS_TASK_WITH = re.compile(
    r"^(?:get (?:my|the|a|an|it|some|this|that|rid|back|ready|new|tickets)\b|go (?:to (?!bed|sleep)|see (?:the"
    r"|my|a)|shopping|running|grocery|get|buy|pick|for (?:a|my))|ask (?!you\b|yourself)|tell (?:my|him|her|them"
    r"|the)\b|talk (?:to|with) (?!you\b)|speak (?:to|with) (?!you\b)|look (?:for|up|into|over)|have (?:my|the|it"
    r"|a (?:talk|meeting|look))\b"
    r"|keep (?:working|practising|practicing|studying)|think of a|explain (?:it|this|that) to (?!you)"
    r"|stop (?:smoking|drinking)|add (?:the|my|some)|see (?:the|a|my) (?:doctor|dentist|vet|lawyer|therapist)"
    r"|eat (?:less|more|healthier)|remember the|mention it to|apologi[sz]e to (?!you)|thank (?!you))"
)
# What lies that far ahead is a dream or a plan, and nothing to ask about within the hour.
_FAR_AHEAD = re.compile(
    r"\b(?:next (?:year|month|summer|winter|spring|autumn|fall)|some ?day|one day|eventually|in (?:the future"
    r"|\d+ (?:years|months)"
    r"|a few (?:years|months))|when i(?:'m| am| retire| grow)|in my next life)\b"
)
_NEGATED = re.compile(r"^(?:never|not)\b|\b(?:ever again)\b")
_NOT_MINE = re.compile(
    r"\b(?:if|when(?:ever)?|unless|until|because then|do|does|did|what|which|where|how|why|whether|that's what"
    r"|wish|think|said|says|told me|thought) *(?:that )?$"
)
_REPORTED = re.compile(
    r"\b(?:he|she|they|[a-z]+) (?:said|says|told|wrote|texted|thinks|asked|asks|insists|promised)\b[^,;]*$"
)
_DONE = re.compile(
    r"\b(?:done|did it|did that|finished(?: it)?|completed|sorted|all set|never ?mind|forget (?:it|about it)"
    r"|cancell?ed|no need|taken care of|already|no longer|not any ?more|erledigt|fertig|gemacht|geschafft|fait"
    r"|termine|hecho|listo|terminado|fatto|finito|feito|pronto|terminei|klaar|gedaan)\b"
)
_DID = re.compile(
    r"\b(?:i|we)(?:'ve| have)?(?: just| already| finally| now)* (?P<verb>\w+(?:ed|t|ne|de|nt|ok|ew|an|ought"
    r"|aught|ade|oke|old|aid))\b"
)
_INTENDS_ELSEWHERE = re.compile(
    r"\b(?:ich (?:muss|werde|will|sollte)|ich hab(?:e)? vor)\b(?! (?:sagen|zugeben|nie|nicht|kein|los|weg|gehen"
    r"|wissen|jetzt (?:los|weg|gehen)))(?P<de>.{6,})"
    r"|\b(?:je dois|je vais|il faut que je)\b(?! (?:bien|mal|tres|y aller|dire|avouer|jamais|pas|mieux"
    r"|me coucher|dormir|filer))(?P<fr>.{5,})"
    r"|\b(?:tengo que|voy a|debo)\b(?! (?:decir|admitir|irme|dormir|ir$))(?P<es>.{4,})|\b(?:devo"
    r"|vado a)\b(?! (?:dire|ammettere|andare$|letto|dormire))(?P<it>.{4,})"
    r"|\b(?:tenho (?:que|de)|preciso(?: de)?|vou)\b(?! (?:dizer|admitir|ir$|embora|dormir|bem|indo|nessa"
    r"|saber))(?P<pt>.{4,})|\bik (?:moet|ga|zal)\b(?! (?:zeggen|toegeven|gaan|weg|nooit|niet|slapen|nu|naar bed"
    r"|ervandoor))(?P<nl>.{4,})"
)


@dataclass(frozen=True, slots=True)
class LooseEnd:
    """Something open: the sentence it stands in, and for a task what is to be done, as it was written."""

    sentence: str
    deed: str | None = None
    is_english: bool = True


def is_offer(reply: str) -> bool:
    """Return whether a reply ends with a question of mere courtesy, to which "no" says that nothing more is wanted."""
    last = _sentences(reply)[-1:]
    return bool(last) and last[0].rstrip("*_ ").endswith("?") and _is_courtesy(last[0])


def open_question(reply: str) -> str | None:
    """Return the last question of a reply that expects an answer and does not get it in the same breath."""
    parts = [part.rstrip("*_ ") for part in _find_own_sentences(reply)]
    for index in range(len(parts) - 1, -1, -1):
        asks = parts[index].endswith(_QUESTION_MARKS)
        if asks and not _is_courtesy(parts[index]):
            remarks = [part for part in parts[index + 1 :] if not part.endswith(_QUESTION_MARKS)]
            return parts[index] if _is_left_open(parts[index], remarks) else None
        if not asks and len(parts) - index > _LONGEST_TAIL:
            return None
    return None


def is_hollow(question: str) -> bool:
    """Return whether a question has no subject of its own: "What follows from that?" can be asked about anything."""
    return all(word in _HOLLOW for word in content_words(question))


def asks_for_a_fact(question: str) -> bool:
    """Return whether a question wants to know when, where, who or how many: even without a subject that has one answer."""
    return bool(_PARTICULAR & set(words(question)[:3]))


def _is_left_open(question: str, remarks: Sequence[str]) -> bool:
    """Return whether what is said after a question leaves it to the user: it is put to them, or little more is said."""
    if any(_ANSWERS_ITSELF.match(plain(remark)) for remark in remarks):
        return False
    return bool(_TO_YOU & set(words(question))) or all(len(words(remark)) <= _SHORT_TAIL for remark in remarks)


def _is_courtesy(question: str) -> bool:
    asked = " ".join(plain(question).split())
    return bool(_COURTESY.match(asked) or _ASKS_TAG.search(asked)) or not words(asked)


@lru_cache(KNOWN)
def open_decision(text: str) -> LooseEnd | None:
    """Return the last decision that the speaker says they have to make and have not made by the end of the message."""
    for sentence in reversed(_find_own_sentences(text)):
        said = " ".join(plain(sentence).split())
        if is_decided(said):
            return None
        for pattern in _DECISIONS:
            found = pattern.search(said)
            if found and not _SUBJECT_BEFORE.search(said[: found.start()]):
                return LooseEnd(sentence)
    return None


@lru_cache(KNOWN)
def is_decided(text: str) -> bool:
    """Return whether a decision was made."""
    return bool(_DECIDED.search(plain(text)))


@lru_cache(KNOWN)
def open_task(text: str) -> LooseEnd | None:
    """Return the last thing that the speaker says they are going to do themselves and have not done by the end of the message."""
    later: list[str] = []
    for sentence in reversed(_find_own_sentences(text)):
        said = " ".join(plain(sentence).split())
        if not said.endswith("?"):
            found = _restore_deed(said)
            if found and not any(settles(each, found.text) for each in later):
                return LooseEnd(sentence, _as_written(sentence, said, found), found.is_english)
        later.append(said)
    return None


@dataclass(frozen=True, slots=True)
class _Deed:
    """Find what somebody is going to do, in plain letters, and where in the sentence that begins."""

    text: str
    begin: int
    is_english: bool


def _as_written(sentence: str, said: str, deed: _Deed) -> str:
    """Return the deed with its capitals and accents, which the plain text has lost; words are the same in both."""
    written = sentence.split()
    if len(written) != len(said.split()):
        return deed.text
    first = len(said[: deed.begin].split())
    return " ".join(written[first : first + len(deed.text.split())]).rstrip(" .!,;")


def _restore_deed(said: str) -> _Deed | None:
    for found in _INTENDS.finditer(said):
        before = said[: found.start()].rstrip(" ,")
        if not (_NOT_MINE.search(before) or _REPORTED.search(before)) and _is_task(found["verb"], found["deed"]):
            if _DONE.search(found["deed"]):
                return None
            return _Deed(found["deed"].rstrip(" .!,;"), found.start("deed"), is_english=True)
    elsewhere = _INTENDS_ELSEWHERE.search(said)
    if elsewhere and content_words(elsewhere[0]) and not _DONE.search(elsewhere[0]):
        language = next(name for name, group in elsewhere.groupdict().items() if group)
        text = elsewhere[language].lstrip(" .!,;")
        return _Deed(text.rstrip(" .!,;"), elsewhere.end(language) - len(text), is_english=False) if text else None
    return None


def _is_task(verb: str, deed: str) -> bool:
    if _NEGATED.search(deed) or _FAR_AHEAD.search(deed):
        return False
    if verb in _IS_NO_TASK and not _IS_TASK_WITH.match(deed):
        return False
    return bool(content_words(deed))


def settles(text: str, deed: str) -> bool:
    """Return whether a later remark says that it is done, or that it needn't be."""
    said = plain(text)
    if _restore_deed(" ".join(said.split())):
        return False
    about = {stem(word) for word in content_words(deed)}
    if any(stem(found["verb"]) in about for found in _DID.finditer(said)):
        return True
    if not _DONE.search(said):
        return False
    here = {stem(word) for word in content_words(_DONE.sub(" ", said))}
    return not here or bool(here & about) or len(here) <= 1


def _find_own_sentences(text: str) -> list[str]:
    """Return the sentences of a message without what it quotes."""
    return _sentences(_QUOTED.sub(" ", text[-_LONGEST:]))


def _sentences(text: str) -> list[str]:
    return sentences(text[-_LONGEST:])[-_MOST_SENTENCES:]
