"""The small English word lists that the built-in model goes by."""


def word_set(text: str) -> frozenset[str]:
    """Return the words of a list written as prose."""
    return frozenset(text.split())


STOP_WORDS = word_set(
    """
    a about above after again all also am an and any anybody anyone anything anywhere are aren't as at be because been before being below between
    both but by can can't cannot could couldn't did didn't do does doesn't doing don't down during each either else
    ever every everybody everyone everything few for from further get gets getting give go goes going got had hadn't has hasn't have haven't
    having he he's her here hers him his how i i'd i'll i'm i've if in into is isn't it it's its itself just let
    let's like lot lots make makes may maybe me might mine more most much must my myself need no nor not now of off
    oh ok okay on once one only or other our ours out over own please quite rather really same say says shall she
    she's should shouldn't so some somebody someone something still such tell than thank thanks that that's the their theirs them
    then there there's these they they're thing things this those though through to too under until up us very want
    was wasn't we we'd we'll we're we've were weren't what what's when when's where where's which while who who's
    whom whose why will with won't would wouldn't yes yet you you'd you'll you're you've your yours
    know think mean kind sort
    """
)

# Question words that carry a meaning of their own only through the kind of answer they expect.
NUMBER_WORDS = word_set(
    """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
    eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million half dozen
    """
)
TIME_WORDS = word_set(
    """
    monday tuesday wednesday thursday friday saturday sunday mondays tuesdays wednesdays thursdays fridays saturdays
    sundays january february march april june july august september october november december today tomorrow
    tonight yesterday noon midnight morning afternoon evening weekend weekends weekday weekdays daily weekly monthly
    yearly annually hour hours minute minutes day days week weeks month months year years o'clock am pm spring
    summer autumn winter
    """
)

# A few irregular forms that a suffix stemmer cannot reach.
IRREGULAR = {
    "left": "leave", "leaving": "leave", "leaves": "leave", "went": "go", "gone": "go", "began": "begin",
    "begun": "begin", "children": "child", "people": "person", "men": "man", "women": "woman", "bought": "buy",
    "paid": "pay", "sent": "send", "met": "meet", "meeting": "meeting", "said": "say", "made": "make",
    "wrote": "write", "written": "write", "found": "find", "kept": "keep", "held": "hold", "lost": "lose",
    "broke": "break", "broken": "break", "chose": "choose", "chosen": "choose", "came": "come", "took": "take",
    "taken": "take", "gave": "give", "given": "give", "built": "build", "taught": "teach", "thought": "think",
    "ran": "run", "sold": "sell", "spoke": "speak", "born": "birth", "living": "live", "lives": "live",
    "mice": "mouse", "feet": "foot",
}  # fmt: skip

# Words that a question and its answer use for the same thing; the first of each group stands for all.
SYNONYMS = {
    word: group[0]
    for group in (
        ("cost", "price", "prices", "fee", "fees", "costs", "charge", "charges", "admission", "pricing"),
        ("begin", "start", "starts", "starting", "started", "begins"),
        ("buy", "purchase", "purchases", "purchased", "order"),
        ("phone", "telephone", "mobile"),
        ("email", "e-mail", "mail", "mails", "emails"),
        ("refund", "return", "returns", "refunds", "money-back"),
        ("delete", "remove", "erase", "deletes", "removes", "deleted", "removed"),
        ("holiday", "vacation", "holidays", "vacations", "leave-days"),
        ("job", "profession", "occupation"),
        ("kid", "child", "children", "kids"),
        ("big", "large", "size"),
        ("doctor", "physician", "dr"),
        ("boss", "manager", "supervisor", "lead"),
        ("flat", "apartment", "apartments", "flats"),
        ("repair", "fix", "mend", "fixed", "fixes"),
        ("password", "passphrase", "passcode"),
        ("allow", "permit", "permitted", "allowed", "permits"),
        ("like", "love", "enjoy", "prefer", "favourite", "favorite", "likes", "loves", "enjoys", "prefers"),
        ("dislike", "hate", "hates", "dislikes"),
        ("car", "vehicle", "vehicles", "cars"),
        ("error", "bug", "fault", "bugs", "errors"),
        ("film", "movie", "films", "movies"),
        ("shop", "store", "stores", "shops"),
    )
    for word in group
}

# Labels that look like a speaker ("Note: …") and are none.
LABELS = word_set(
    """
    note notes remember reminder todo question answer q a re fw fwd subject ps nb tip warning error update edit
    example examples sources source summary goal goals plan plans problem idea list shopping agenda address phone
    email date time place task tasks title topic context input output http https hint fact facts info important
    option options step steps result status issue bug step code url link today tomorrow yesterday monday tuesday
    wednesday thursday friday saturday sunday from to cc here this that also and but so ok okay hi hello hey thanks
    sorry please yes no well resolved outstanding
    """
)

# Capitalised words after "I'm …" that are no names.
NOT_NAMES = word_set(
    """
    german french english spanish portuguese italian american british irish scottish welsh dutch danish swedish
    norwegian finnish polish czech russian ukrainian greek turkish chinese japanese korean indian pakistani
    brazilian mexican argentinian canadian australian african european asian swiss austrian belgian catholic
    muslim jewish christian hindu buddhist sorry happy sad tired fine ok okay good great well not so very really
    just still here back done sure afraid busy late home new old bored hungry lost stuck in at on from the a an
    going trying looking thinking working writing planning interested excited worried glad ready free sick ill
    better also currently always never monday tuesday wednesday thursday friday saturday sunday
    """
)
