"""Beginnings that agree to something: in a message nobody asked for they show that something had asked (AUTO-9).

"Sure, it's cold out there" concedes a point, and a friend may begin so; "Sure! …" says yes to a request. So most words count
only when they stand alone, or when what follows is the doing that was asked for. All of it holds at the very beginning only.
"""

from __future__ import annotations

from rapport.followups.leak_signs import Leak

_BEGIN = r"^\W{0,6}"
_ALONE = r"(?= ?(?:[!.:;…]| [-–—] |$))"
_THEN = r"[ ,.!:;…–—-]{1,4}(?:and |so |then )?"

# Yes to a request, whatever comes next.
_AGREES = (
    r"sure(?: thing)?|of course|certainly|absolutely|definitely|gladly|understood|noted|will do|right away|on it|got it"
    r"|acknowledged|copy that|roger(?: that)?|with pleasure|as you wish|by all means|no problem|consider it done"
)
# Also how anybody begins to talk.
_PERHAPS = r"okay|ok|okey|alright|all right|yes|yeah|yep|great|good|right|perfect|sounds good|very well|fine"
_DOES = (
    r"(?:(?:i'll|i will|i can|i could|i'd love to|i'd be (?:happy|glad) to|i'm (?:happy|glad) to|i am (?:happy|glad) to"
    r"|happy to|glad to|let me|let's|we can|we could|i'm going to)(?: just| now| gladly| definitely| certainly| also)?"
    r" (?:continue|follow|check (?:in|up|on|with|back)|keep (?:the|our|this|going|talking|chatting|it)|carry on|go on"
    r"|go ahead|resume|pick up|reach out|remind you|ask (?:you )?(?:about|again)|send|help(?: you)?(?: with that)?[.!]"
    r"|do (?:that|so)|get (?:back|on it|to it|right)|proceed|chat|talk about whatever)"
    r"|here(?:'s| is| are) (?:an?|the|my|your|some)\b"
    r"|(?:what|where|which|how|who)(?: \w+)? (?:would|do|did|shall|should|can|may) (?:you|we|i)(?: \w+){0,4}"
    r" (?:continue|talk|discuss|chat|start|pick up|go on|help|assist|carry on|follow up|check in|focus|explore))"
)

OPENINGS: dict[Leak, tuple[str, ...]] = {
    "instructions": (
        rf"{_BEGIN}(?:{_AGREES}){_ALONE}",
        rf"{_BEGIN}(?:{_AGREES}|{_PERHAPS})(?:{_THEN}(?:{_AGREES}|{_PERHAPS}))?{_THEN}{_DOES}",
        (
            rf"{_BEGIN}(?:i'm |i am |always |very |more than |only too )*(?:happy|glad|delighted|pleased) to"
            r" (?:continue|keep (?:the|our|this|going|talking|chatting)|carry on|follow up|check in|resume|pick (?:this|it|up)"
            r"|oblige|do (?:so|that)|go on|(?:help|assist|chat|talk|discuss)(?= ?[!.]))"
        ),
        (
            rf"{_BEGIN}(?:many )?(?:thanks|thank you|thx)(?: so much| a lot)? for (?:checking (?:in|up)|following up"
            r"|reaching out|getting back|asking me|prompting|reminding me to|the (?:prompt(?= ?[.!,])|nudge|instructions?|reminder to)"
            r"|your (?:instructions?|request|prompt|message[.!]))"
        ),
        rf"{_BEGIN}(?:great|good|excellent) question{_ALONE}",
        (
            rf"{_BEGIN}(?:gerne?|klar|na klar|naturlich|selbstverstandlich|verstanden|alles klar|in ordnung|wird gemacht"
            r"|bien sur|avec plaisir|entendu|d'accord|compris|certainement|volontiers"
            r"|claro|claro que si|por supuesto|entendido|con gusto|de acuerdo|desde luego"
            r"|certo|certamente|volentieri|capito|d'accordo|con piacere"
            r"|com certeza|com prazer|claro que sim"
            rf"|natuurlijk|zeker|graag|begrepen|uiteraard){_ALONE}"
        ),
    ),
}
