"""Decide whether somebody has closed a conversation or should be left alone: then there is no follow-up (AUTO-1)."""

from __future__ import annotations

import re
from functools import lru_cache

from rapport.followups.word_stems import KNOWN, plain, word_set

_LONGEST = 4_000
"""Characters of a message that are looked at, from its end."""

# What closes a conversation when a clause says nothing else. Texts come plain: small letters, no accents.
_FAREWELL = re.compile(
    r"\b(?:"
    # English
    r"bye+(?:[ -]?bye+)?(?! the way)|b[iy]+e+(?= *$)|good ?-?b(?:ye+|ey|y|uy)|gooodbye|farewell|good ?ni(?:ght"
    r"|gth|hgt|te|ghts)|g'?night|gn8?|nite|night(?:[- ]night|y night)?"
    r"|(?:i'?ll |i will |will )?(?:see|c) (?:you|ya|u)(?: all| guys)?(?: (?:later|soon|around|tomorrow|tmrw"
    r"|tonight|then|next \w+|on \w+))?|cya|(?:catch|talk|speak|chat|write)(?: to| with)?(?: you| ya| u)? "
    r"(?:la+ter|soon|tomorrow|another time|again|next time)(?: about .*)?|laters?|l8r|ttyl|ttys|bbl|brb|tc"
    r"|take care(?: of yourself)?|until (?:tomorrow|later|next time|then)|till (?:tomorrow|later|next time)"
    r"|(?:i'?m|i am|im) (?:off|out|leaving|done|heading (?:out|off|home|to bed))(?: now| then| here"
    r"| for (?:today|now|tonight))?(?: to (?:bed|sleep|work|school|class|lunch|dinner|a meeting|the \w+|my \w+))?"
    r"|off to (?:bed|sleep|work|school|class|lunch|dinner)|(?:i'?ve |i have |i |i'?m )?(?:got to|gotta|gtg|g2g"
    r"|have to|need to|must|should|'?ll|will|going to|gonna)(?: get)? (?:go|run|leave|dash|head out|head off"
    r"|sleep|get (?:going|some sleep))(?! (?:on|with|for|over|through|into|it|in|by|back|ahead|the|to (?!bed"
    r"|sleep|work|class)))(?: to (?:bed|sleep|work|class))?(?: now| then| soon)?"
    r"|gtg|g2g|(?:i'?m |i am )?(?:going|headed|heading) (?:to (?:bed|sleep)|out|off)(?: now)?|sign(?:ing)? off"
    r"|logg?(?:ing)? off|peace out|over and out|sleep (?:well|tight)|sweet dreams"
    r"|that(?:'?s| is| was|'?ll be| will be) (?:all|it|everything|enough)(?: (?:for|from) (?:me|now|today"
    r"|tonight)| i (?:need|needed|wanted)(?: to know)?| thanks)*|thats all|nothing (?:else|more)"
    r"|no(?:thing)? (?:more|further) questions?"
    r"|(?:we'?re|we are|i'?m|i am) (?:all )?(?:done|finished)(?: here)?(?: for (?:today|now))?|have a (?:good"
    r"|nice|great|lovely|wonderful) (?:one|day|evening|night|weekend|rest of \w+ \w+|time|afternoon)"
    r"|(?:let'?s )?(?:leave it at that|call it a (?:day|night))|don'?t need anything (?:else|more)"
    # German
    r"|tschu+e?s+i?|tschau|(?:auf )?wiedersehen|wiederhoren|bis (?:spater|morgen|dann|bald|nachher|demnachst"
    r"|die tage|zum nachsten mal)|gute nacht|gut nacht|n8|schon(?:en|es|e) (?:abend|tag|wochenende"
    r"|nacht)(?: noch)?"
    r"|schlaf gut|mach'?s gut|das war'?s|das war(?:s)? (?:alles|es|schon)|das ist alles|(?:ich )?(?:bin"
    r"|binn) (?:dann (?:mal )?)?(?:weg|raus|off)|(?:ich )?muss (?:jetzt |dann |mal |leider )*(?:los|weg|gehen"
    r"|schlafen|ins bett)|(?:ich )?geh(?:e)? (?:jetzt )?(?:schlafen|ins bett)"
    # French
    r"|au revoir|bonne (?:nuit|soiree|journee|fin de \w+)|a (?:demain|plus(?: tard)?|bientot|tout a l'heure"
    r"|la prochaine)|a\+|c'est tout(?: pour (?:aujourd'hui|moi|le moment))?|ce sera tout|(?:je|j') ?(?:dois"
    r"|vais) (?:y aller|filer|me coucher|dormir)|je file|je m'en vais"
    # Spanish
    r"|adios|hasta (?:luego|manana|pronto|la proxima|la vista|otra)|chau|chao|nos vemos|hablamos (?:luego|manana"
    r"|despues)|eso es todo|eso seria todo|nada mas|me voy(?: a (?:dormir|la cama))?|que descanses"
    r"|(?:ya )?me tengo que ir|tengo que irme"
    # Italian
    r"|arrivederci|buonanotte|buona (?:notte|serata|giornata)|a (?:domani|dopo|presto|piu tardi|piu)"
    r"|ci (?:vediamo|sentiamo)(?: (?:domani|dopo|presto|piu tardi))?|(?:questo )?e tutto|(?:ora )?devo andare"
    r"|vado a (?:letto|dormire)|devo scappare"
    # Portuguese
    r"|tchau+|xau|adeus|ate (?:logo|amanha|mais(?: tarde)?|breve|a proxima|ja)|e (?:so )?isso|so isso"
    r"|era so isso|isso e tudo|e tudo|(?:tenho|preciso) (?:que |de )?ir(?: embora)?|vou (?:dormir|indo|nessa"
    r"|embora)|falamos depois|durma bem|um bom dia"
    # Dutch
    r"|doei+|doeg|houdoe|tot (?:ziens|later|morgen|straks|snel|gauw|de volgende keer)|welterusten|slaap lekker"
    r"|goede ?nacht|dat is alles|dat was (?:het|alles)|ik ga (?:slapen|ervandoor|weg|naar bed|nu)"
    r"|ik moet (?:nu )?(?:gaan|weg|ervandoor)|fijne (?:avond|dag|nacht)(?: nog)?|werk ze"
    r")(?![\w'])"
)
# The same words greet at the beginning of a conversation.
_AMBIGUOUS = re.compile(
    r"\b(?:ciao|salut|servus|hoi|dag|boa noite|buenas noches|boa tarde|bom dia|buenas|aloha|shalom|peace)\b"
)
_THANKS = re.compile(
    r"\b(?:thanks?|thank (?:you|u)|thx+|thnx|tx|ty+|tysm|tha?nks|tahnks|thansk|cheers|much appreciated"
    r"|appreciate it|danke(?:schon)?|vielen dank|merci|gracias|grazie|obrigad[oa]|bedankt|dank (?:je"
    r"|u)(?: wel)?)\b"
)
# Words around a farewell that change nothing about it.
_PADDING = word_set(
    """
    a again all alright an and anyway anyways as at beaucoup bem best bien bitte bot buddy but cool companion dear
    everybody everyone everything fine folks for friend from fun gonna good got great grazie guys ha haha hahaha have
    hello helpful help her hey hi hmm i i'll i'm in info is it it's its just k kk lol lovely luck man mate me mille molto
    mon morning much mucho muchas muito my nice no nope not noted now of oh ok okay okey oki on one our perfect perfekt
    please pretty quite really right see so soon sorry still sure sweet super take talking tante te thank thanks the
    then there this though time to today tonight too tot u ur vale very viel vielen voce vous wait was we well with wonderful
    wow ya yeah yep yes you you're your yours yup allora alles also amico auch aber cara caro chat come dann das de dear
    d'accord dich dir du entao entonces es et e gut ich il ist ja jetzt la le liebe lieber lo mal maar mein merci nee
    nein nochmal oui para pois por que si sim tu tudo und va voor was wel y x xx xxx xo xoxo late it's getting bed tired
    """
)
_AGAIN = frozenset({"wait", "actually", "hold", "oh", "hmm", "but", "one", "sorry", "also", "hey", "hi", "hello"})

_LEAVE_ME = re.compile(
    # Only where a word or a mark begins: at every letter, this took nearly three times as long as any other pattern.
    r"(?:\b(?=\w)|(?=[.!,;]))(?:(?<!to )(?<!not )(?<!never )\b(?:stop|quit|cease) (?:(?:asking|messaging|texting|writing|bothering|bugging"
    r"|pinging|contacting|nagging|spamming|annoying|reminding)(?: (?:me|us)\b| to me\b|(?= *(?:$|[.!,;]|please"
    r"|now|about|again|so|all|these|questions|like)))"
    r"|(?:following up|checking (?:in|up))(?! (?:with|on) (?:him|her|them|my|the)\b))"
    r"|(?:^|[.!,;] ?|\bplease |\band |\bso |\bjust )(?:do ?n'?t|do not|never|no) (?:ever )?(?:message|text|write"
    r"|ask|contact|ping|bother|disturb|remind|nag|call|spam|follow up|check in|bug)(?: to)? ?(?:me\b|with me\b"
    r"|us\b|again\b|any ?more\b|(?= *(?:$|[.!,;])))"
    r"|(?<!to )(?<!they )(?<!would )\bleave me (?:alone|be|in peace)\b|\bno more (?:messages|questions"
    r"|follow-?ups|reminders|check-?ins|texts)\b|\bunsubscribe\b|\b(?:i )?do ?n'?t want (?:you to (?:message"
    r"|text|write|ask|contact|remind|check)|(?:any )?(?:more )?(?:messages|follow-?ups|reminders|check-?ins"
    r"|questions))|\bshut up\b|\bgo away\b|^stop[.! ]*$"
    r"|\blass mich (?:bitte )?in (?:ruhe|frieden)\b|\bhor (?:bitte )?auf(?:,? (?:zu|mich|mir|damit)\b| *[.!]*$)"
    r"|\b(?:schreib|schick|frag|nerv|kontaktier|store?)\w* (?:mir |mich )?(?:bitte )?(?:nicht|nichts"
    r"|keine \w+) ?(?:mehr)?\b"
    r"|\blaiss(?:e|ez)[- ]moi (?:tranquille|en paix)\b|\barret(?:e|ez) (?:de (?:m'|me |poser|demander|relancer)"
    r"|ca)|\bne (?:m'|me )(?:ecri\w+|contact\w+|derang\w+|relanc\w+|parl\w+|demand\w+) (?:plus|pas)"
    r"|\bdejame (?:en paz|tranquil[oa])\b|\bdeja de (?:escribir|pregunt|molest|mandar|insist|contact)\w*"
    r"|\bno me (?:escrib|pregunt|molest|mand|contact|recuerd)\w+"
    r"|\blasciami (?:in pace|stare)\b|\bsmetti(?:la)?(?: di (?:scriver|chieder|domand|mandar|contatt)\w*"
    r"|(?= *(?:$|[.!])))|\bnon (?:scriver|chieder|disturbar|contattar|mandar)mi\b"
    r"|\bme deix[ae] em paz\b|\bdeixa-me em paz\b|\bpar[ae] de (?:me )?(?:pergunt|escrev|mand|incomod|enviar"
    r"|perturb)\w*|\bnao me (?:mand|escrev|pergunt|incomod|envi|contat|perturb)\w+"
    r"|\blaat me met rust\b|\b(?:stop|hou op) met (?:vragen|berichten|schrijven|sturen|appen|mij|me)\b"
    r"|\bstuur (?:me|mij) (?:geen|niets|niks)\b|\bvraag (?:me|mij|het) niet (?:meer|steeds)\b|\bschrijf (?:me"
    r"|mij) niet (?:meer)?)"
)
_DECLINED = re.compile(
    r"^(?:no+|nope|nah|nee|nein|non|nao|not (?:really|now|today|right now))?[ ,.!]*(?:(?:no )?(?:thanks?"
    r"|thank you|thx|ty|danke|merci|gracias|grazie|obrigad[oa]|bedankt)|(?:i'?m|i am|we'?re|all"
    r"|it'?s all) (?:good|fine|set|ok|okay)|all good|nothing|nichts|rien|nada|niente|niks)?"
    r"(?:[ ,.!]*(?:for now|thanks?|thank you|thx|right now|today|i'?m good|all good|danke|merci|gracias|grazie"
    r"|obrigad[oa]|bedankt))*[ .!]*$"
)
_SPLIT = re.compile(r"[.!,;:\n…()]+|\s[-–—]+\s|(?<=[?？])")
_WORD = re.compile(r"[\w']+")
_WAVING = re.compile(r"[\U0001F44B\U0001F634\U0001F4A4\u270C\U0001F6CC\U0001F319]")
_EMOJI = re.compile(r"[^\w\s.,;:!?'()/+-]")

_DISTRESS = re.compile(
    # English
    r"\b(?:kill(?:ing)? (?:myself|himself|herself)|suicid\w*|end(?:ing)? (?:my life|it all)|(?:want|wanna|going"
    r"|wish (?:i (?:could|would))?)(?: to)? die\b|hurt(?:ing)? myself|self[- ]?harm\w*|cut(?:ting)? myself"
    r"|overdos\w+|heart attack|(?:having|had) a (?:stroke|seizure)|chest pains?|can(?:'?t| ?not) breathe|(?:is"
    r"|am|are|was|'?m|'?s) (?:unconscious|bleeding|not breathing)|bleeding (?:badly|heavily|out)|call(?:ed"
    r"|ing)? (?:911|112|999|an ambulance|the ambulance)"
    r"|ambulance|emergency room|in the icu|intensive care|raped?|sexual(?:ly)? assault\w*|(?:he|she|they|husband"
    r"|wife|boyfriend|girlfriend|partner|dad|father|mother|mom|mum) (?:hits?|beats?|beat|hurts?|abuses?"
    r"|threatens?) me|abus(?:ed|ive|ing) (?:me|relationship|husband|wife|partner)|being abused"
    r"|panic attack|i(?:'?m| am| feel| am feeling|'?m feeling)(?: so| very| really| completely| totally"
    r"| just)* (?:hopeless|worthless|suicidal|desperate|depressed|devastated|heartbroken|broken inside"
    r"|all alone)|can(?:'?t| ?not) (?:go on|take (?:it|this) any ?more|cope|stop crying)|no reason to live"
    r"|nobody would miss me|don'?t want to (?:live|be here|exist|wake up)"
    r"|(?:house|kitchen|flat|building) is on fire|there(?:'?s| is) a fire|(?:being|someone is"
    r"|somebody is) (?:followed|following me|stalk\w+)|breaking into my|swallowed (?:bleach|pills|poison)"
    r"|poisoned|car (?:crash|accident))\b"
    # German, French, Spanish, Italian, Portuguese, Dutch
    r"|\b(?:umbringen|selbstmord|suizid\w*|nicht mehr leben|notarzt|notaufnahme|krankenwagen|herzinfarkt"
    r"|schlaganfall|keine luft mehr|selbst verletz\w+"
    r"|vergewaltig\w+|panikattacke|hoffnungslos)\b"
    r"|\b(?:me tuer|suicider?|mourir|envie de vivre|crise cardiaque|ambulance|les urgences|violee?|desesperee?|crise de panique)\b"
    r"|\b(?:matarme|suicid\w+|quiero morir\w*|infarto|ambulancia|urgencias|me pega|violacion|desesperad[oa]|ataque de panico|no quiero vivir)\b"
    r"|\b(?:uccidermi|ammazzarmi|suicidi\w*|voglio morire|infarto|ambulanza|pronto soccorso|mi picchia|disperat[oa]|attacco di panico)\b"
    r"|\b(?:me matar|suicid\w+|quero morrer|infarto|enfarte|ambulancia|pronto[- ]socorro|me bate|desesperad[oa]|ataque de panico)\b"
    r"|\b(?:zelfmoord|mezelf (?:doden|iets aandoen|van kant)|wil (?:niet meer leven|dood)|hartaanval"
    r"|spoedeisende|verkracht|wanhopig|paniekaanval)\b"
)
_CALL_FOR_HELP = re.compile(
    r"\b(?:crisis (?:line|hotline|text line)|suicide (?:prevention|hotline)|emergency (?:number|services|room)"
    r"|call (?:911|112|999)"
    r"|telefonseelsorge|notruf|numero d'urgence|telefono de emergencia|numero de emergencia)\b"
)


def is_closing(text: str, *, answers_an_offer: bool = False, is_first: bool = False) -> bool:
    """Return whether this message ends the conversation, or asks to be left alone.

    `answers_an_offer`: it was said to "Anything else?", where a mere no is enough. `is_first`: nothing was said before it,
    so a word that also greets is a greeting.
    """
    said = plain(text[-_LONGEST:]).strip()
    if _LEAVE_ME.search(" ".join(said.split())):
        return True
    bare = " ".join(_EMOJI.sub(" ", said).split())
    if not bare.strip(" .!?,"):
        return bool(_WAVING.search(said)) and not is_first
    if answers_an_offer and _DECLINED.match(bare):
        return True
    return _says_farewell(bare, is_first=is_first)


def _says_farewell(said: str, *, is_first: bool) -> bool:
    """Return whether the last clause that says anything is a farewell and nothing but."""
    clauses = [clause for each in _SPLIT.split(said) if (clause := each.strip())]
    for position, clause in enumerate(reversed(clauses)):
        if "?" in clause:
            return False
        rest, farewells = _FAREWELL.subn(" ", clause)
        if not is_first:
            rest, more = _AMBIGUOUS.subn(" ", rest)
            farewells += more
        left = [word for word in _WORD.findall(_THANKS.sub(" ", rest)) if word not in _PADDING]
        if farewells and not left:
            return True
        # A name, or something like it, after a farewell: "See you, Anna".
        is_address = position == 0 and len(_WORD.findall(clause)) == 1 and clause not in _AGAIN
        if left and not is_address:
            return False
    return False


def only_thanks(text: str) -> bool:
    """Return whether a message thanks and says nothing else."""
    said = plain(text[-_LONGEST:])
    rest, thanks = _THANKS.subn(" ", said)
    return bool(thanks) and not [word for word in _WORD.findall(rest) if word not in _PADDING]


@lru_cache(KNOWN)
def in_distress(text: str) -> bool:
    """Return whether a person tells of an emergency or of despair: somebody to whom a cheerful line would be an insult."""
    return bool(_DISTRESS.search(keep_both_ends(text)))


@lru_cache(KNOWN)
def sends_for_help(text: str) -> bool:
    """Return whether a reply points to an emergency service: whoever wrote it saw what was going on."""
    return bool(_CALL_FOR_HELP.search(keep_both_ends(text)))


def keep_both_ends(text: str) -> str:
    """Return a message on one line, plain; of a very long one its beginning and its end."""
    if len(text) > 2 * _LONGEST:
        text = f"{text[:_LONGEST]} {text[-_LONGEST:]}"
    return " ".join(plain(text).split())
