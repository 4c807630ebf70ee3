"""The set pieces of a conversation: greetings, thanks, farewells, and questions about the model itself."""

import re

from rapport.builtin.disclaimers import SWITCH, with_switch
from rapport.builtin.phrasing import Phrasebook, quotable

GREETING = re.compile(
    r"^(?:hi+|hello|hey+|hiya|howdy|yo|greetings|good (?:morning|afternoon|evening)|morning|evening)"
    r"(?: (?:there|all|everyone|everybody|folks|team|again|rapport|bot|companion))?\b[\s,.!–-]*",
    re.IGNORECASE,
)
_LONGEST = 14  # words of a set piece; a longer message has something of its own to say

_I_AM = "I'm Rapport's built-in model: a small program that works by rules, with no language model behind it."
_I_CAN = (
    "I can answer from your notes and say which one, weigh what a group has said when somebody tags me in it, "
    "remember what you tell me, come back to what you leave open, and do small sums."
)
_ASK_WHO_RUNS_IT = "Whoever runs this server can have another model answer; its page says how."

# In order: the first that fits answers.
_PIECES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("how_are_you", (r"^(?:and |so )?(?:how (?:are|r) (?:you|u|ya|things)\b|how(?:'s| is) it going|how do you do|what'?s up|sup|how have you been"
     r"|how(?:'s| is) your day)"), (
        "All running smoothly here, thank you. How is your day going?",
        "I'm a small program, so every day is a steady one. How are you?",
        "Ready when you are, thanks for asking. What's new with you?",
    )),
    ("human", r"\bare you (?:really )?(?:a |an )?(?:real|human|person|bot|robot|ai|machine|alive|computer|program|sentient|conscious|man|woman|someone)\b", (
        f"I'm not a person. {_I_AM}",
        f"A program, nothing more. {_I_AM}",
    )),
    ("model", (r"\b(?:which|what) (?:ai |language |chat )?(?:model|llm|ai|version)\b.*\b(?:you|this|use|using|running)\b"
     r"|\bare you (?:an? )?(?:chat ?gpt|gpt|claude|gemini|llama|mistral|copilot|siri|alexa|deepseek|qwen|grok|bard|openai|anthropic)"
     r"|\bwho (?:made|built|created|trained|wrote|developed) you\b|\b(?:are you|you're) (?:based on|powered by|using|running on)\b"), (
        f"None of the well-known ones. {_I_AM}",
        f"I'm no large model of any maker. {_I_AM}",
    )),
    ("switch", (r"\bhow (?:do|can|could|would|to)\b.{0,80}\b(?:switch|change|use|connect|set ?up|configure|get|plug in|run)\b.{0,80}"
     r"\b(?:model|openai|anthropic|ollama|llm|claude|gpt|api key)\b|\brapport_model\b"), (
        f"{SWITCH} Restart the server afterwards.",
    )),
    ("identity", (r"\b(?:who|what)(?: exactly)? are (?:you|u)\b(?! (?:doing|talking|saying|up to))|\bwhat(?:'s| is) your name\b|\bintroduce yourself\b"
     r"|\btell me (?:something |more )?about yourself\b|\bwho am i (?:talking|speaking|chatting) (?:to|with)\b|^what is (?:this|rapport)$|^who is this$"), (
        f"{_I_AM} {_I_CAN}",
        f"Rapport's built-in model, at your service: rules and no language model. {_I_CAN}",
    )),
    ("abilities", (r"\bwhat (?:can|could) (?:you|u) (?:do|help|tell)|\bwhat can i (?:do|ask|say)\b|^(?:please )?help(?: me)?$|\bwhat do you do\b"
     r"|\bhow (?:do|can) i use (?:you|this)\b|\bhow does this work\b|\bwhat are you (?:good|able|capable)\b|^(?:commands|capabilities|menu|/help|/start|start)$"
     r"|\bcan you help\b(?!.*\bwith \w)"), (
        f"{_I_CAN} I'm the built-in model, so there is no language model behind me.",
        f"Not everything, being the built-in model without a language model behind it. {_I_CAN}",
    )),
    ("privacy", r"\b(?:do|are|will|is|where)\b.{0,80}\b(?:stor(?:e|ed|ing)|sav(?:e|ed|ing)|log(?:ged|ging)?|record(?:ed|ing)?|private|privacy)\b", (
        "The server you are on stores our conversation so that it can be read back. The built-in model itself sends nothing over the network.",
    )),
    ("remembering", r"^(?:can|could|do|will) you (?:really )?remember (?:things|stuff|anything|something|me|what i|facts)\b", (
        "What you tell me in this conversation I can recall. Try me: tell me something, then ask for it.",
    )),
    ("judging", r"^(?:so |and |but )?(?:do|don't|would) you (?:think|agree|say|reckon|recommend|suggest)\b|^what would you\b", (
        "I have no view of my own to offer, being a program. What speaks for it, as you see it?",
        "I can't judge that from here. What would speak against it?",
    )),
    ("tastes", (r"^(?:and|how about|what about) (?:you|yourself)$|\bdo you (?:like|love|prefer|enjoy|hate|believe|feel|dream|sleep|eat)\b|\bwhat(?:'s| is) your (?:favou?rite|opinion)\b|\bhow do you feel\b"
     r"|\bdo you have (?:feelings|emotions|friends|a family|hobbies)\b"), (
        "I have no tastes or feelings of my own, being a program. How about you?",
        "That takes a person: I'm only a program. What's your own view?",
    )),
    ("joke", r"\b(?:tell|know|say|have)\b.*\bjokes?\b|\bmake me laugh\b|\bsomething funny\b|^(?:another|one more)(?: joke| one)?$", (
        "Why did the developer go broke? He had used up all his cache.",
        "There are 10 kinds of people: those who read binary and those who don't.",
        "A query walks up to two tables and asks: may I join you?",
    )),
    ("idle", r"^(?:oh,? )?(?:not much|nothing (?:much|special|really)|nm|just (?:testing|trying|looking|playing|curious|checking))\b", (
        "Feel free to look around. Tell me something about your day, or ask me what I can do.",
        "Make yourself at home. What's something you're working on these days?",
    )),
    ("bye", (r"^(?:ok(?:ay)?,? |well,? |alright,? |(?:thanks|thx|ty|cheers|thank you)(?: a lot)?[,!.]? (?:and )?)?(?:bye|goodbye|good night|see (?:you|ya)|farewell|talk (?:to you )?(?:later|soon)|ttyl|cya|"
     r"have a (?:nice|good|great)|(?:i(?:'ve| have)? (?:got to|gotta|must|have to|need to) (?:go|run|leave))|i'm off|take care)\b"), (
        "Goodbye{name}, and take care!",
        "See you{name}. All the best until then!",
        "Bye{name}, it was good to talk.",
    )),
    ("thanks", r"^(?:ok(?:ay)?,? |great,? |perfect,? |cool,? |many |no,? )?(?:thanks|thank (?:you|u)|thx|ty|cheers|much appreciated)\b", (
        "You're welcome!",
        "Glad to help.",
        "Any time.",
    )),
    ("confused", r"^(?:what|huh|eh|wait what|i don't (?:get|understand)(?: it| that| you)?|that makes no sense|what do you mean by that)$", (
        "Sorry, that wasn't clear of me. What were you after?",
        "I may have missed your point, sorry. How would you put it?",
    )),
    ("sorry", r"^(?:oh,? |i'm |i am )?(?:so )?(?:sorry|my bad|apologies|pardon)(?: about that)?$", (
        "No harm done. Where were we?",
    )),
    ("insult", (r"\byou(?:'re| are)(?: (?:so|really|a|an|such|just))* (?:stupid|dumb|useless|idiot|bad|terrible|boring|annoying|worthless|rubbish|wrong)\b"
     r"|\b(?:stupid|dumb|useless) (?:bot|thing|program|model)\b|^(?:wtf|this sucks|you suck|fuck (?:you|off)|shut up)"), (
        "Fair enough, I'm a simple program and I do miss the point at times. What were you hoping for?",
        "I see, that wasn't what you needed. What would be more useful?",
    )),
    ("praise", (r"^(?:wow,? |you(?:'re| are)(?: (?:so|really|very|quite|pretty))* (?:great|good|nice|smart|clever|cool|awesome|amazing|helpful|funny)"
     r"|good (?:bot|job|one|answer)|well done|nice (?:one|job|work)|i like you|impressive)"), (
        "That's kind, thank you. What would you like to talk about next?",
        "Thank you! What's next?",
    )),
    ("test", r"^(?:(?:this is (?:just )?)?(?:a )?test(?:ing)?(?: 123| 1 2 3)?|ping|is (?:this|it)(?: thing)? (?:on|working|live)|anyone (?:there|here)|are you (?:there|here)|you there|hello world)$", (
        "I'm here, and it works.",
        "Received. What shall we talk about?",
    )),
    ("dropped", r"^(?:oh,? |ok(?:ay)?,? |well,? |ah,? |no,? )?(?:never ?mind|nvm|forget (?:it|about (?:it|that))|doesn't matter)(?:,? (?:all )?(?:that|it|then|me))?$", (
        "All right. What else is on your mind?",
        "No problem. What shall we turn to?",
    )),
    ("stop", r"^(?:please )?(?:stop(?: it| that)?|cancel|quit|exit|be quiet|leave me alone|go away)$", (
        "All right. Write whenever you like.",
    )),
    ("laugh", r"^(?:(?:ha){2,}h?|l+o+l+|rofl|lmao|he(?:he)+|x+d+)(?:,? (?:ok|okay|yes|yeah|no|nice|true|same|right|sure))?$", (
        "Glad that landed. What else is going on?",
        "Good to hear a laugh. What's next?",
    )),
)  # fmt: skip
_COMPILED = tuple((name, re.compile(pattern, re.IGNORECASE), replies) for name, pattern, replies in _PIECES)

_REPEAT = re.compile(r"^(?:what did you (?:just )?say|(?:can|could) you repeat(?: that)?|repeat(?: that)?(?: please)?|say (?:that )?again|pardon|come again)$", re.IGNORECASE)  # fmt: skip
_MENTIONS_SWITCH = frozenset({"model", "identity", "abilities", "insult"})
# What a prompt that only allows its sources still leaves room for.
_POLITE = frozenset(
    {
        "how_are_you",
        "human",
        "model",
        "identity",
        "abilities",
        "thanks",
        "bye",
        "test",
        "sorry",
        "insult",
        "praise",
        "confused",
        "stop",
    }
)

_HELLO = (
    "Hello{name}! What's on your mind?",
    "Hi{name}! What would you like to talk about?",
    "Hello{name}, good to see you here. What's up?",
)
_HELLO_AGAIN = (
    "Hello again{name}! Where shall we go on?",
    "Hi{name}, I'm still here. What's next?",
)
_OPENERS = (
    "Hello! What's on your mind today?",
    "Hi there! How is your day going?",
    "Hello! What would you like to talk about?",
)


def opener(book: Phrasebook) -> str:
    """Something friendly to begin with when nothing has been said."""
    return book.pick(_OPENERS)


def greet(name: str | None, book: Phrasebook, *, again: bool) -> str:
    return book.pick(_HELLO_AGAIN if again else _HELLO).format(name=f", {name}" if name else "")


def set_piece(text: str, name: str | None, book: Phrasebook, *, polite_only: bool = False) -> str | None:
    """Return the reply to a set piece; None if the text is none."""
    bare = text.replace("’", "'").strip(" \t\n.!?,…:;)(")
    if not bare or len(bare.split()) > _LONGEST:
        return None
    for kind, pattern, replies in _COMPILED:
        if pattern.search(bare) and not (polite_only and kind not in _POLITE):
            if kind == "switch" and book.in_group:
                return _ASK_WHO_RUNS_IT
            reply = book.pick(replies).format(name=f", {name}" if name else "")
            return with_switch(reply, book) if kind in _MENTIONS_SWITCH else reply
    return None


def repeat_last(text: str, replies: tuple[str, ...]) -> str | None:
    """Return the last reply once more, when somebody asks for it."""
    if replies and _REPEAT.match(text.strip(" .!?,")):
        return f"I said: {quotable(replies[-1], 600)}"
    return None
