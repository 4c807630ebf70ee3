"""Hold the data of the memory measurement: memories by subject, and messages about each subject.

Written by hand. The memories of a subject are relevant to its messages; the messages avoid the memories' own words
where people would. `{…}` is filled with one of the values, the same in a subject's memories and messages.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Subject:
    """A subject of conversation, and the memories that belong to it."""

    memories: tuple[str, ...]
    messages: tuple[str, ...]
    values: tuple[str, ...] = ("",)


SUBJECTS: tuple[Subject, ...] = (
    Subject(
        ("The user is allergic to {}.", "The user carries an adrenaline pen in case of an allergic reaction."),
        ("Is this biscuit safe for me, it may contain traces of {}?", "What should I tell the restaurant about my allergy?", "My lips are swelling after dinner, could it be something I ate?"),
        ("peanuts", "shellfish", "sesame", "eggs", "kiwi"),
    ),
    Subject(
        ("The user is vegan.", "The user's favourite dish is {}."),
        ("What could I cook for dinner on Saturday?", "Any idea for a meal without animal products?", "I feel like {} again, do you have a good recipe?"),
        ("aubergine curry", "lentil bolognese", "mushroom risotto"),
    ),
    Subject(
        ("The user is training for a marathon in {}.", "The user goes running every morning before work."),
        ("My knee hurts after yesterday's long run.", "How many kilometres should I do this week?", "What should I eat before the race?"),
        ("Hamburg", "Valencia", "Chicago", "Athens"),
    ),
    Subject(
        ("The user's daughter is called {}.", "The user's daughter starts school in September."),
        ("I need a birthday present for my little girl.", "{} is nervous about her first day at school.", "How do I explain homework to my child?"),
        ("Mia", "Freya", "Leila", "Ines", "Noor"),
    ),
    Subject(
        ("The user has a dog called {}.", "The user's dog is afraid of fireworks."),
        ("The puppy chewed up my shoes again.", "How do I calm {} on New Year's Eve?", "Can I take my pet on the train?"),
        ("Rex", "Biscuit", "Pepper", "Bruno"),
    ),
    Subject(
        ("The user works as a {}.", "The user works night shifts twice a week."),
        ("My boss changed the rota again and I'm exhausted.", "How do I ask for fewer late shifts?", "Something funny happened at my job as a {}."),
        ("nurse", "security guard", "baker", "train driver"),
    ),
    Subject(
        ("The user is learning {}.", "The user practises vocabulary with flash cards."),
        ("I keep forgetting new words.", "Can we have a short conversation in {}?", "How long until I can read a newspaper abroad?"),
        ("Japanese", "Portuguese", "Finnish", "Arabic"),
    ),
    Subject(
        ("The user is planning a trip to {} in October.", "The user prefers trains to planes."),
        ("What should I pack for my holiday?", "How many days do I need in {}?", "Is there a way to get there without flying?"),
        ("Japan", "Morocco", "Scotland", "Sicily"),
    ),
    Subject(
        ("The user is writing a thesis about {}.", "The user's thesis is due at the end of June."),
        ("I can't find the right structure for my third chapter.", "My supervisor wants changes before the deadline.", "How do I cite a study about {}?"),
        ("bees", "urban heat", "medieval trade", "coral reefs"),
    ),
    Subject(
        ("The user plays the {}.", "The user's band has a concert every spring."),
        ("How can I practise scales without disturbing the neighbours?", "We're looking for songs for our next gig.", "My fingers hurt after rehearsal."),
        ("guitar", "cello", "piano", "saxophone"),
    ),
    Subject(
        ("The user lives in {}.", "The user lives on the fourth floor without a lift."),
        ("What's going on in my city this weekend?", "How do I get a sofa up to my flat?", "Is it going to rain at home?"),
        ("Lisbon", "Leeds", "Graz", "Montreal"),
    ),
    Subject(
        ("The user has type 1 diabetes.", "The user wears a glucose sensor."),
        ("My sugar was very low this morning.", "How many carbs are in a bowl of porridge?", "Does sport change how much insulin I need?"),
    ),
    Subject(
        ("The user's mother lives in {}.", "The user calls their mother every Sunday."),
        ("Mum sounded lonely on the phone.", "What could I send to my parents for their anniversary?", "I want to visit my family more often."),
        ("Krakow", "Dublin", "Izmir"),
    ),
    Subject(
        ("The user is saving for a house.", "The user can put aside {} euros a month."),
        ("Is now a good moment to take out a mortgage?", "Where can I cut my spending?", "How much deposit do banks ask for?"),
        ("300", "450", "800"),
    ),
    Subject(
        ("The user loves {} films.", "The user goes to the cinema every Thursday."),
        ("What should I watch tonight?", "Which director is worth discovering?", "Is there anything good on at the pictures?"),
        ("horror", "science-fiction", "French", "silent"),
    ),
    Subject(
        ("The user is restoring an old {}.", "The user rents a workshop with two friends."),
        ("I can't get the rust off the frame.", "Where do I find spare parts for something that old?", "The engine starts and dies at once."),
        ("motorbike", "sailing boat", "Beetle"),
    ),
    Subject(
        ("The user is getting married in {}.", "The user's fiancé is called Sam."),
        ("We have to decide about the seating plan.", "How long should my speech at the ceremony be?", "What colours go with a summer wedding?"),
        ("June", "August", "Tuscany"),
    ),
    Subject(
        ("The user is trying to quit smoking.", "The user started smoking at {}."),
        ("I had a cigarette yesterday and feel awful.", "What helps against cravings?", "Do nicotine patches work?"),
        ("sixteen", "nineteen", "twenty"),
    ),
    Subject(
        ("The user grows {} on their balcony.", "The user's balcony faces north."),
        ("The leaves are turning yellow.", "How often should I water in a heat wave?", "Which plants do well in the shade?"),
        ("tomatoes", "herbs", "chillies"),
    ),
    Subject(
        ("The user suffers from migraines.", "The user can't work with bright light when a migraine comes."),
        ("My head is pounding again.", "Could the weather be a trigger of my headaches?", "Which lamps are gentle on the eyes?"),
    ),
    Subject(
        ("The user plays chess in a club.", "The user's rating is about {}."),
        ("I lost with the black pieces again.", "Which opening should I learn next?", "How do I stop blundering in the endgame?"),
        ("1400", "1650", "1900"),
    ),
    Subject(
        ("The user has an incomplete work project about {}.", "The user's team presents the project to the board in March."),
        ("I still haven't finished the slides for work.", "How do I tell my manager that we need two more weeks?", "What belongs into a good presentation?"),
        ("solar panels", "a new payroll system", "parcel logistics"),
    ),
    Subject(
        ("The user is deciding between two flats.", "The user wants a garden more than a second bathroom."),
        ("The landlord wants an answer by Monday.", "What should I look at when I view a place?", "Is a ground-floor apartment a bad idea?"),
    ),
    Subject(
        ("The user is afraid of flying.", "The user's brother lives in {}."),
        ("I have to take a plane next month and I'm panicking.", "What helps against turbulence?", "I would love to see my brother again."),
        ("Toronto", "Sydney", "Cape Town"),
    ),
    Subject(
        ("The user volunteers at an animal shelter.", "The user looks after {} kittens at the moment."),
        ("One of the little ones doesn't want to drink.", "How do we find people who adopt older animals?", "What do rescue cats need in the first week?"),
        ("three", "five"),
    ),
)  # fmt: skip

DISTRACTORS: tuple[str, ...] = (
    "The user checks in on an elderly neighbour every week.",
    "The user follows up on every invoice after ten days.",
    "The user often leaves questions in forums unanswered.",
    "The user likes to continue conversations over dinner.",
    "The user makes decisions slowly and writes lists of pros and cons.",
    "The user has an unfinished jigsaw puzzle of 5000 pieces.",
    "The user responds to messages in the evening.",
    "The user's task at home is to take out the bins.",
    "The user drives an old Volvo.",
    "The user's favourite colour is green.",
    "The user was born on 3 May.",
    "The user is left-handed.",
    "The user collects old maps.",
    "The user doesn't drink alcohol.",
    "The user has a subscription to a newspaper.",
    "The user wears size 43 shoes.",
    "The user's sister is a lawyer.",
    "The user uses Linux on a ten-year-old laptop.",
    "The user prefers short answers.",
    "The user is interested in astronomy.",
    "The user had an operation on the shoulder in 2019.",
    "The user doesn't like crowded places.",
    "The user's grandfather was a fisherman.",
    "The user's phone is always on silent.",
    "The user bakes bread on Sundays.",
    "The user is a member of the local library.",
    "The user's bank is closing its branch.",
    "The user reads crime novels.",
    "The user's car insurance renews in January.",
    "The user speaks Portuguese and French.",
)

SMALL_TALK: tuple[tuple[str, str], ...] = (
    ("Hello!", "Hello, nice to see you."),
    ("How does photosynthesis work?", "Plants turn light, water and carbon dioxide into sugar."),
    ("What's the capital of Mongolia?", "Ulaanbaatar."),
    ("Tell me something about comets.", "They are made of ice and dust."),
    ("Thanks, that was helpful.", "You're welcome."),
)
ANSWERS = (
    "Let me think about that with you.",
    "That sounds like something we can sort out step by step.",
    "Good question. It depends on a few things.",
)
FOLLOW_UPS = (
    "By the way, how did it go?",
    "I was thinking about what you said. Is there anything else I can do?",
    "Did you get any further with that?",
)
