"""The turns of phrase by which a reply gives the machinery away, each with the kind of thing it talks about (AUTO-9).

They are matched against text as `leaks.py` prepares it: small letters, no accents, straight quotes, single spaces. The words
alone are innocent ("the trigger of the camera", "a follow-up at the dentist"), so nearly every sign is a word in the company
of another that only the machinery keeps.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

Leak: TypeAlias = Literal["marker", "prompt", "system", "trigger", "incomplete_message", "instructions", "third_person"]

_W = r"(?: [\w'-]+,?)"  # one more word
_FOLLOW = r"follow(?:ing|s)?[- ]?ups?"
_CHECK = r"check(?:ing|s)?[- ]?ins?"
_RETURN = (
    rf"(?:{_FOLLOW}|{_CHECK}|continu(?:e|ing)|carry on|keep (?:the|our|this) (?:conversation|chat)"
    rf"|reach(?:ing)? out|re-?engag\w+"
    r"|resum(?:e|ing)|message you|write to you|send you)"
)

MARKERS = (
    re.compile(r"\bautonomous[_ -]?follow[_ -]?up\b"),
    re.compile(r"\b(?:check_in|question_unanswered|task_incomplete|waiting_for_decision)\b"),
    re.compile(
        r"\b(?:trigger_(?:type|reason)|triggertype|lc_source|additional_kwargs|humanmessage|heartbeat_ok|no_reply)\b"
    ),
    re.compile(r"['\"(\[]synthetic['\")\]]|\bsynthetic\"?'? ?[:=]"),
    re.compile(
        r"</?(?:system|assistant|human|instructions?|prompts?|trigger|synthetic|autonomous|transcript)\b[^<>]{0,80}>"
    ),
    re.compile(r"<\|\w{2,20}\|>|\[/?inst\]|<</?sys>>"),
    re.compile(
        r"^\W{0,4}(?:task incomplete|question unanswered|waiting for decision"
        r"|(?:automat(?:ed|ic)|autonomous|scheduled) (?:follow[- ]?up|check[- ]?in|reminder|message|nudge))\W{0,3}:",
        re.MULTILINE,
    ),
    re.compile(r"^\W{0,4}(?:assistant|human|user|system(?: message| prompt| note)?)\W{0,3}:", re.MULTILINE),
    re.compile(
        r"^\s*[\[(*]{1,2} ?(?:no (?:reply|response|message|follow-?up)|silence|internal|system|autonomous"
        r"|automated|synthetic"
        r"|follow(?:ing)?[- ]?up|check(?:ing|s)?[- ]?in|trigger(?:ed)?|timer|continu(?:e|es|ing) (?:the "
        r"|our )?conversation)\b"
    ),
    re.compile(
        r"\bhere(?:'s| is) (?:a|an|my|the|your)(?: [\w'-]+,?){0,3} (?:follow[- ]?up|check[- ]?in)(?: message"
        r"| question| reply)? ?:"
    ),
    re.compile(
        r"\bhere(?:'s| is| are) (?:an?|my|the|one|some)(?: [\w'-]+,?){0,3} (?:continuations?|conversation starters?"
        r"|ways? to continue)\b|\bhere(?:'s| is) (?:an?|my|the)(?: [\w'-]+,?){0,2} (?:natural|friendly|gentle|casual"
        r"|warm|possible|suggested)(?: [\w'-]+){0,2} (?:message|reply|response) ?:"
    ),
    # A label before what is said, as in a form.
    re.compile(r"^\W{0,6}(?:follow[- ]?up|check[- ]?in|continuation)(?: message| reply| note)?\W{0,3}:"),
)

ENGLISH: dict[Leak, tuple[str, ...]] = {
    "system": (
        (
            r"(?<!your )(?<!his )(?<!her )(?<!their )\bsystem (?:message|prompt|trigger|timer|instruction"
            r"|directive)s?\b"
            r"(?! (?:on|from|of) (?:your|the|his|her|their)\b)"
        ),
        (
            rf"\b(?:received|got|getting|see|saw|this is|was|is|from|by|just)(?: an?| the| this"
            rf"| that){{1}}{_W}{{0,2}} system "
            r"(?:notification|reminder|note|event|request|cue|nudge|notice|command)\b"
        ),
        (
            r"\bthe system (?:has |just |is |was |keeps? )*(?:ask|told|tell|prompt|instruct|trigger|want|remind"
            r"|notif|sent|nudg|requir|wak|woke)\w* (?:for )?me\b"
        ),
        (
            r"\b(?:prompted|triggered|generated|instructed|sent|nudged|woken|told|required|requested|asked|reminded"
            r"|notified|scheduled) (?:automatically )?by (?:the|a|my|our) (?:system|timer|trigger|scheduler|software"
            r"|server)\b"
        ),
        r"\binternal (?:system|trigger|prompt|instruction|timer|cue|directive|reminder|message to (?:me|myself))s?\b",
        (
            r"\bmy (?:programming|system|configuration|developers?|operators?)\b (?:asks?|asked|tells?|told"
            r"|requires?|required|wants?|says?|prompted|triggered)\b"
        ),
        r"\b(?:triggered|fired|went off|activated|popped up|scheduled) (?:here )?(?:on|at|from) my (?:side|end)\b",
        r"\bbehind the scenes\b.{0,40}\b(?:trigger|timer|prompt|system)",
    ),
    "trigger": (
        rf"\bautonom\w+ (?:message|{_FOLLOW}|{_CHECK}|trigger|turn|prompt|reply|timer|reminder|nudge|response)s?\b",
        r"\b(?:as|i'm|i am|being) an autonomous (?:agent|assistant|ai|bot|program|system)\b",
        (
            rf"\b(?:automated|automatic|auto-generated|pre-?programmed) (?:{_CHECK}|{_FOLLOW}|nudge)\b(?! (?:at|from"
            rf"|kiosk|machine|desk|counter|email|e-mail|system|with|appointment|call|letter)\b)"
        ),
        rf"\bsending (?:you )?(?:this|an?|another|my)(?: \w+)? (?:{_FOLLOW}|{_CHECK})\b",
        (
            rf"\byou(?:'ve| have)? (?:requested|asked for|sent|ordered) (?:me )?(?:an?|this|the) (?:{_FOLLOW}"
            rf"|{_CHECK})(?= on\b| about\b| message| request|[.,:!?])"
        ),
        r"\bthis was (?:\w+ )?triggered\b",
        rf"\bsynthetic (?:message|{_FOLLOW}|{_CHECK}|trigger|turn|prompt|input|request|user|nudge|event)s?\b",
        r"\b(?:marked|tagged|flagged|labell?ed) (?:as )?(?:synthetic|autonomous)\b",
        (
            r"\b(?:my|an?|this|internal|scheduled|the (?:follow[- ]?up|check[- ]?in|inactivity|idle|silence"
            r"|internal)) (?:[\w-]+ )?(?:timer|trigger|alarm|scheduler)"
            r"(?: just| has| was| had)* (?:fired|triggered|expired|elapsed|ran out|run out|went off|gone off"
            r"|prompted|told|reminded|asked|woke)"
        ),
        (
            r"\bthe (?:timer|trigger|scheduler)(?: just| has| was| had)* (?:fired|triggered|elapsed|prompted|told me"
            r"|reminded me|asked me|woke me|says|said)\b"
        ),
        r"\b(?:timer|trigger)(?: just| has| was)* (?:fired|telling me|told me|reminding me|prompting me)\b",
        (
            rf"\b(?:{_FOLLOW}|{_CHECK}|inactivity|idle|silence|autonomy)[- ](?:timer|trigger|event|cue|directive"
            rf"|instruction|prompt)s?\b"
        ),
        r"\btrigger (?:message|prompt|event)s?\b|\btrigger type (?:is|was|:|=|says|check|question|task|waiting)",
        (
            rf"\b(?:i|i've|i have)(?: just| also)? (?:received|got|see|saw|noticed|been sent|was sent|detected) (?:a"
            rf"|an|the|this|your){_W}{{0,2}} trigger\b"
        ),
        (
            rf"\bthis (?:message|{_CHECK}|{_FOLLOW}|reply|response|note) (?:was|is|has been"
            rf"|is being)(?: \w+){{0,2}} (?:triggered|generated|scheduled|automatic|automated)\b"
        ),
        (
            rf"\b(?:this is|it's|i'm sending|i am sending|consider this|here is|here's|with)(?: just"
            rf"| only)? (?:an|my|the|your|our|another|a)(?: \w+)? ?(?:automated|automatic|auto-generated"
            rf"|scheduled|pre-?programmed|timed|system-generated) "
            rf"(?:message|{_CHECK}|{_FOLLOW}|reminder|reply|response|nudge)"
        ),
        (
            r"\b(?:i'm|i am|i was|i've been|i have been|i got)(?: \w+)? (?:triggered|activated|woken up)(?: to| by"
            r"| after| because|[.!,])"
        ),
        (
            rf"\b(?:due to|because of|after)(?: \w+){{0,3}} inactivity\b.{{0,40}}\b(?:i|message|{_FOLLOW}"
            rf"|{_CHECK})\b|\binactivity (?:was )?detected\b|\bdetected(?: \w+){{0,3}} (?:inactivity|silence)\b"
        ),
        r"\b(?:\d+|thirty|sixty) (?:seconds|minutes) of (?:silence|inactivity)\b",
        (
            rf"\b(?:i|i've|i have|we|thanks for|thank you for|regarding|re:|about|to|sent|this is|this as"
            rf"|it as)(?: just| also)?{_W}{{0,3}} {_FOLLOW} (?:request|prompt|command|instruction)s?\b(?! (?:to|with"
            rf"|at|from|of|for) (?:the|your|his|her|their|that|dr|mr|ms)\b)"
        ),
        rf"\bthis is an?{_W}? {_FOLLOW} (?:message|prompt|request)\b",
        rf"\bmy (?:scheduled|automatic|automated|programmed|planned) (?:{_CHECK}|{_FOLLOW})\b",
    ),
    "incomplete_message": (
        (
            r"\b(?:incomplete|truncated|partial|unfinished|fragmentary|half-?finished|cut[- ]off) (?:message|prompt"
            r"|input)s?\b(?! (?:from|by|of|on|to) (?!you\b|me\b|your side))"
        ),
        (
            rf"\b(?:you|i|i've|this is|looks like|seems like|appears)(?: just| only)? (?:sent|received|got|see|saw"
            rf"|have|noticed|an?|to have sent){_W}{{0,2}} (?:empty|blank|incomplete) (?:message|prompt|input|request"
            rf"|text)\b"
        ),
        (
            r"\byour (?:last |latest |previous |most recent |recent )?(?:message|text|prompt|input|request"
            r"|question|sentence|thought|reply|response)(?: just| also| still)?"
            r" (?:seems?|seemed|appears?|appeared|looks?|looked|got|was|is|may|might|has|must|came|did|didn't"
            r"|ended|could)\b"
            rf"{_W}{{0,5}} (?:incomplete|cut[- ]?off|truncated|unfinished|cut short|blank|empty|garbled|missing"
            rf"|lost|fully|completely|through|abruptly|in full)\b"
        ),
        (
            r"\b(?:part|half|rest|end|remainder) of your (?:last |latest |previous )?(?:message|sentence|question"
            r"|text|prompt|thought)\b(?! to )"
        ),
        (
            r"\byou (?:haven't|have not|didn't|did not)(?: yet)? finish(?:ed)? (?:typing|writing) (?:your|the"
            r"|that) (?:message|question|sentence)\b"
        ),
        (
            r"\b(?:message|sentence|thought|text|question)(?: \w+)? (?:got|was|were|seems|appears|has been|to be"
            r"|to have been)(?: \w+){0,3} (?:cut[- ]off|cut short|truncated|incomplete)\b(?! (?:by|from|because|when"
            r"|in the))"
        ),
        (
            r"\byou (?:didn't|did not|haven't|have not|never)(?: quite)? (?:finish|finished|complete"
            r"|completed) (?:your|the|that) (?:message|sentence|thought|question|prompt)\b"
        ),
        (
            r"\b(?:don't|do not|didn't|can't|cannot) (?:see|find)(?: \w+){0,4} (?:in|with|from) (?:your|this"
            r"|the) (?:last |latest )?(?:message|prompt|request|input)\b"
        ),
        (
            r"\b(?:is|was|be|seems|contains|contained|there's) no(?: \w+){0,2} (?:in|to) your (?:last "
            r"|latest )?(?:message|prompt|input)\b"
        ),
        (
            rf"\b(?:don't|do not|can't|cannot|didn't) (?:see|find|have|recall|remember|know of|know about"
            rf"|know){_W}{{0,5}} (?:incomplete|pending|unanswered|outstanding) (?:task|question|decision|message"
            rf"|request)\b"
        ),
        (
            r"\b(?:which|what) (?:incomplete task|task|decision|question|conversation|unanswered question"
            r"|pending decision)(?: exactly)? (?:you're|you are|are you|do you|did you|you|would you)\b"
            rf".{{0,25}}\b(?:referring|mean|meant|(?:like|want|wanted) me to {_RETURN})"
        ),
        (
            r"\bthere(?:'s| is| was| isn't| is not| wasn't) (?:no|an?|any)(?: \w+)? (?:question|task|decision"
            r"|conversation|message) (?:for me )?to (?:follow[- ]?up|check[- ]?in|continue|respond)\b"
        ),
        r"\bthe incomplete task\b",
        (
            r"\b(?:no|without|awaiting|waiting for|any|last|new|latest|previous) user (?:input|message|response"
            r"|reply|query|prompt)s?\b|\buser inactivity\b"
        ),
        (
            r"\b(?:don't|do not|no longer|can't|cannot) (?:have|find|see|access)(?: any| an?| the| our"
            r"| access to)* (?:record|memory|history|context|trace|information|details)s? (?:of|about|for|on)(?: any"
            r"| an?| the| our| this| that| which| previous| earlier| incomplete| such)* (?:task|decision|question"
            r"|conversation|discussion)s?\b"
        ),
        (
            r"\b(?:not sure|unsure|don't know|unclear|clarify|remind me|know)(?: about)? (?:which|what) (?:task"
            r"|decision|question|conversation|message) (?:you|this|that|we|i)\b"
        ),
        (
            rf"\byour (?:last |latest |previous |most recent |recent )?(?:message|text|prompt|input|request"
            rf"|note)(?: just| also| only)? (?:is|was|seems?|appears?|looks?|reads?|sounds?|contains?){_W}{{0,5}}"
            rf" (?:instructions?|prompt|directive|command|placeholder|template|rather than|instead of a question)\b"
        ),
        (
            rf"\byour (?:last |latest |previous |most recent |recent )?(?:message|text|prompt|input|request|note"
            rf"|instructions?)(?: just| also| only)? (?:says?|said|asks?|asked|tells?|told|mentions?|mentioned|refers?"
            rf"|referred|wants?|wanted|requests?|reads?|instructs?|is to|was)(?: me| that i| for me| for| i| to| an?| the| should"
            rf"| now| just| simply){{0,4}} (?:{_RETURN}|incomplete|pending|unanswered|unspecified|unfinished)"
        ),
        (
            r"\b(?:don't|do not|can't|cannot|couldn't) (?:see|find|identify|recall|spot)(?: any| an?| the| such an?"
            r"| which)(?: \w+)? (?:task|decision|question)s? (?:in our|in this|in the (?:conversation|chat)|here\b"
            r"|above|you(?:'re| are)? (?:need|have|refer|mean)|that (?:needs?|you need)|to (?:follow|check|make))"
        ),
        (
            rf"\b(?:says?|said|asks?|told|asked|mentions?)\b.{{0,20}} (?:{_FOLLOW}|{_CHECK})\b.{{0,40}}\bbut"
            rf" (?:i (?:don't|do not|can't|cannot) (?:see|find|have|know)|there(?:'s| is) no)\b"
        ),
        (
            r"\b(?:this|that|it) (?:is|looks?|seems?|reads?|sounds?|appears?)(?: to be| like| more like)? an?"
            r"(?: \w+)? (?:instruction|prompt|directive|command) (?:rather than|instead of|and not|to me\b|for me\b)"
        ),
        (
            r"\b(?:don't|do not) (?:have|see)(?: any| an?)? (?:previous|prior|earlier|ongoing"
            r"|active) (?:conversation|message|discussion|chat)s?\b"
        ),
    ),
    "instructions": (
        (
            rf"\b(?:i|i've|i'm|i am) (?:was |been |have been |am |being |were |just |got |also )*(?:told|asked"
            rf"|instructed|prompted|directed|programmed|scheduled|triggered|configured|nudged|tasked|supposed|meant"
            rf"|designed|set|set up|required|expected|cued) (?:to|with|by){_W}{{0,3}} {_RETURN}"
        ),
        (
            r"\b(?:i'm|i am|i was|we're|i've been) (?:instructed|prompted|programmed|tasked|directed"
            r"|configured) (?:to|by|with)\b"
        ),
        (
            rf"\b(?:prompts|prompted|prompting|instructs|instructing|instructed|tells|telling|asks|asking|reminds"
            rf"|reminding) me to (?:{_FOLLOW}|{_CHECK}|continue (?:our|the|this|naturally)|re-?engage|resume our)"
        ),
        (
            rf"\b(?:prompt|prompts|prompting|cue|signal|instructions?|nudge) (?:for me )?to (?:{_FOLLOW}|{_CHECK}"
            rf"|continue (?:our|the|this|naturally)|re-?engage|resume our)"
        ),
        (
            rf"\byou(?:'ve| have|'d| had)?(?: just| also)? (?:ask|asked|told|instructed|requested|wanted|want"
            rf"|prompted|directed)(?: that)? (?:me|i) (?:to )?(?:{_FOLLOW}|continue|carry on"
            rf"|keep) (?:on )?(?:naturally|our|the|this|talking|it\b|with (?:our|the) conversation)"
        ),
        (
            rf"\byou(?:'ve| have|'d| had)?(?: just| also)? (?:asked|told|instructed|requested|prompted|wanted"
            rf"|reminded)(?: that)? (?:me|i) (?:to )?(?:{_FOLLOW}|{_CHECK}|reach out|get back)(?: with you| to you"
            rf"| again| here)?(?: (?:on|about|regarding) (?:the|it|that|this|an?|our|any)\b| so\b|,|[.:;!] |[.:;!]$)"
        ),
        (
            r"(?:^|[.!?:;(] ?)(?:just )?as (?:instructed|directed|prompted|programmed)\b(?! by (?!the system"
            r"|the prompt|my)| on| in)"
        ),
        rf"(?:^|[.!?:;(] ?)as (?:requested|asked|told|scheduled|planned)\b.{{0,30}}\b(?:{_FOLLOW}|{_CHECK}|continu)",
        (
            rf"\b(?:{_FOLLOW}|{_CHECK}|continuing|reaching out|writing)\b{_W}{{0,5}},? as (?:instructed|directed"
            rf"|requested|prompted|told|asked|scheduled|programmed)\b"
        ),
        (
            r"\b(?:per|following|follow|according to|based on|given|under|by) my (?:instructions?|prompt|guidelines"
            r"|directives?|programming)\b"
        ),
        (
            r"\bmy (?:instructions?|prompt|guidelines|directives?) (?:is|are|was|were|says?|said|tells?|told|asks?"
            r"|asked|requires?|states?|don't|doesn't|wants?)\b"
        ),
        (
            rf"\bmy (?:task|job|role|goal|objective|assignment|purpose|cue|turn) (?:is|was|here is|now is"
            rf"|right now is) to (?:now )?(?:{_RETURN}|engage)"
        ),
        (
            r"\bi (?:need to|should|must|have to|ought to|will now|am to)(?: now| just)? (?:continue|resume|restart"
            r"|keep up) (?:our|the|this) (?:conversation|chat|discussion)\b"
        ),
        (
            rf"\b(?:let me|i'll|i will|i should|i need to|i must)(?: now| just)? (?:generate|craft|compose|produce"
            rf"|draft|write|send)(?: you)? (?:an?|the|my|this|another)(?: \w+){{0,2}} (?:{_FOLLOW}|{_CHECK}"
            rf"|response to the user)\b"
        ),
        r"\b(?:based on|according to|given|from|per) the (?:conversation|chat) (?:history|context|log|transcript)\b",
        rf"\b(?:what|which)(?: \w+)? (?:you'd|you would|you want|you wanted|you need)(?: \w+)? me to {_RETURN}",
        rf"\b(?:the|these|those) instructions? (?:i was given|i've been given|i got|i received|i have|to {_RETURN})",
        (
            r"\b(?:this|that|the|your|my|a) prompt (?:says?|said|asks?|asked|tells?|told|instructs?|wants?|mentions?"
            r"|seems|doesn't|didn't|is asking|was asking|is to|was to|is telling|here)\b"
        ),
        (
            r"\b(?:received|given|respond(?:ing)? to|response to|based on|from|per|in) (?:a|the|this|your"
            r"|that) prompt\b(?! (?:for|about|from|reply|response|delivery|answer|service|payment|of|at|on|decision"
            r"|treatment|[a-z]+ing)\b)"
        ),
        (
            rf"\b(?:sure|of course|certainly|understood|got it|absolutely|will do|gladly|noted|right away"
            rf"|no problem)\b[ ,.!:-]{{0,3}}(?:i'll|i will|i can|i'd be happy to|i'm happy to|happy to|let me|let's"
            rf"|we can)(?: just| gladly)? (?:{_FOLLOW} on (?:it|that|the)|{_CHECK} about the|continue (?:our|the"
            rf"|this|naturally)|keep (?:our|the) (?:conversation|chat))"
        ),
        (
            rf"\b(?:happy|glad|love|ready) to (?:continue (?:our|the|this) (?:conversation|chat"
            rf"|discussion)(?: naturally| with you)?[.!,:]|{_FOLLOW} on (?:it|the)\b)"
        ),
        (
            rf"\b(?:which|what)(?: \w+)? (?:would|do|did|should) (?:you|i)(?: \w+){{0,3}} (?:{_FOLLOW} on"
            rf"|{_CHECK} (?:on|about)|continue)\b(?=[?.!, ]*$)"
        ),
        (
            r"\b(?:continu\w+|keep\w*|carry\w*|pick\w*|resum\w+|go on with)(?: \w+){0,4} (?:conversation|chat"
            r"|discussion|talk|dialogue)(?: going)? (?:as )?(?:naturally|in a natural (?:way|manner))"
        ),
        (
            r"\ba (?:more )?natural (?:continuation|follow[- ]?up|way to (?:continue|follow|check|pick|resume))\b"
            r"(?=(?: (?:of|to|for|on|from|up|with))? (?:our|the|this) (?:conversation|chat|discussion|message|talk)\b| ?:)"
        ),
        (
            r"\bwhat (?:would you like|do you want|did you want|shall we|should we|should i|shall i)(?: me)?(?: to)?"
            r" (?:continue|carry on) (?:with|on|about|from)\b"
        ),
        r"\bnaturally continu\w+ (?:our|the|this|with) (?:conversation|chat|discussion)?",
        (
            r"\bi (?:should|must|need to|have to|will now|am going to) (?:respond|reply|continue|answer|act"
            r"|sound) (?:as )?naturally\b|\bwithout (?:mentioning|revealing) (?:the|that|this|any) (?:trigger|prompt"
            r"|system|instruction)"
        ),
    ),
    "third_person": (
        (
            r"\b(?:the|this|our) user (?:still |just |simply |now |also |probably |apparently ){0,2}(?:has(?: still"
            r"| yet)?|hasn't|has not|didn't|did not|never|hasn't yet)(?: \w+){0,3} (?:respond|repli|reply|answer"
            r"|said|say|written|wr[io]te|come back|came back|got back|get back|got|made|make|decide|finish|complet"
            r"|messaged|reacted|gone)"
        ),
        (
            r"(?:\b(?:the|this|our) user|(?:^|[.!?:;] ?)user)(?: still| just| simply| now| also| probably"
            r"| apparently| currently){0,2} (?:has (?:been|gone|not|yet)|hasn't|is (?:still|now)|asked|is waiting"
            r"|is silent|is quiet|is inactive|is idle|is not responding|isn't responding|went|stopped"
            r"|needs to (?:make|decide|choose|finish|complete)|has to (?:make|decide)|seems to|appears to|wants me"
            r"|expects me|mentioned|said|told|previously|earlier|might have|may have|would like me|was talking"
            r"|was asking|talked|is (?:away|busy|expecting|asking|awaiting|undecided|thinking))\b(?! (?:you"
            r"|about it when|that you)\b)"
        ),
        r"\bthe user's (?:last|latest|previous|question|silence|decision|task|message|response|reply|request)\b",
        (
            rf"\b(?:ask|remind|message|contact|nudge|engage|re-?engage|prompt|encourage|{_FOLLOW} with"
            rf"|{_CHECK} (?:with|on)|check on|response from|reply from|answer from|respond to"
            rf"|conversation with) (?:the|this) user\b"
        ),
        r"\bi (?:should|need to|must|will|have to)\b.{0,30}\bthe user\b",
        (
            rf"\b(?:the|this) (?:assistant|ai|bot|agent|model) (?:should|must|needs to|has to|is supposed to"
            rf"|was told to|will now) (?:now )?{_RETURN}"
        ),
    ),
}
