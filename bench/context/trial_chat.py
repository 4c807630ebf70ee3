"""Hold the chat of the trial: five people, two days, four discussions, twelve calls; and the scripted model's answers.

Labels: d dinner, v van and move, p printer at work, h hike; c1 to c12 are the calls, `c1!` is the answer to c1.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Said:
    """Describe one message: its text, its time, and for a call the messages that it means."""

    label: str
    minute: float
    who: str
    text: str
    reply_to: str = ""
    meant: tuple[str, ...] = ()
    """Messages that must be selected."""
    fine: tuple[str, ...] = ()
    """Messages that may be selected too."""

    @property
    def is_call(self) -> bool:
        return self.label.startswith("c")


CHAT: tuple[Said, ...] = (
    Said("d1", 0, "Ana", "Shall we have dinner together on Saturday? My place is too small, so a restaurant."),
    Said("d2", 2, "Ben", "Yes! I'd like Italian, the new trattoria on Mill Street has good reviews."),
    Said("d3", 5, "Chloe", "Indian for me, the one by the station has proper vegetarian food."),
    Said("v1", 9, "Dev", "Different thing: does anybody have a driving licence for a van? I move out on the 28th."),
    Said("d4", 12, "Eva", "I'm fine with both, but I can't eat gluten."),
    Said("d5", 15, "Ana", "Eva, the trattoria has gluten free pasta, I looked at the menu."),
    Said("c1", 17, "Ana", "@bot what do you think?", meant=("d1", "d2", "d3", "d4", "d5")),
    Said("v2", 31, "Ben", "@Dev I have one. How big is the van, and how many floors?"),
    Said("v3", 34, "Dev", "3.5 tons, and third floor without a lift. Sorry."),
    Said("c2", 36, "Dev", "@bot ^", meant=("v1", "v2", "v3")),
    Said("d6", 190, "Chloe", "The Indian place has dosa, that is rice and lentils, no gluten at all."),
    Said("c3", 194, "Eva", "@bot so, Italian or Indian?", meant=("d2", "d3", "d4", "d5", "d6"), fine=("d1",)),
    Said("p1", 905, "Ben", "The printer on the second floor eats paper again."),
    Said("p2", 907, "Eva", "Which tray? Tray 2 has a broken roller since Tuesday."),
    Said("p3", 909, "Ben", "Tray 2, yes. It pulls three sheets at once."),
    Said("d7", 915, "Ana", "About tomorrow night: I'd have to book today, they keep no tables on Saturdays."),
    Said("p4", 918, "Eva", "Use tray 1 until the roller comes, I ordered it from the supplier in Ghent."),
    Said("c4", 920, "Ben", "@bot can you help?", meant=("p1", "p2", "p3", "p4")),
    Said("c5", 931, "Chloe", "@bot summarise the discussion please", reply_to="d7", meant=("d1", "d2", "d3", "d4", "d5", "d6", "d7")),
    Said("v4", 1010, "Dev", "For the van: rental wants 89 euros for the day, or 55 for a half day until one o'clock."),
    Said("v5", 1013, "Chloe", "Third floor in half a day? With five people maybe."),
    Said("h1", 1016, "Eva", "Who comes along on Sunday? I want to walk the ridge path, 14 kilometres."),
    Said("v6", 1019, "Ben", "@Dev take the whole day. Half a day gets tight with the piano."),
    Said("h2", 1021, "Ana", "@Eva I'd come if it doesn't rain. The ridge is slippery when wet."),
    Said("c6", 1024, "Dev", "@bot whole day or half day?", meant=("v3", "v4", "v5", "v6"), fine=("v1", "v2")),
    Said("h3", 1030, "Chloe", "Forecast says showers from two o'clock on Sunday."),
    Said("c7", 1034, "Eva", "@bot any thoughts?", meant=("h1", "h2", "h3")),
    Said("d8", 1440, "Ana", "I called both. Italian has a table at eight, Indian only at six."),
    Said("d9", 1444, "Ben", "Six is too early for me, I work until half past six."),
    Said("c8", 1447, "Ana", "@bot ^", meant=("d8", "d9"), fine=("d1", "d2", "d3", "d4", "d5", "d6", "d7")),
    Said("h4", 1500, "Eva", "We could start at seven in the morning and be down before the showers."),
    Said("h5", 1504, "Ana", "Seven on a Sunday after a late dinner? Have mercy."),
    Said("v7", 1508, "Dev", "Booked the van for the whole day."),
    Said("c9", 1512, "Eva", "@bot what would you do?", reply_to="h5", meant=("h1", "h2", "h3", "h4", "h5")),
    Said("d10", 1800, "Chloe", "All right, Italian at eight then. I'll survive on risotto."),
    Said("c10", 1805, "Ben", "@bot what have we decided about dinner?", meant=("d8", "d9", "d10"), fine=("d1", "d2", "d3", "d4", "d5", "d6", "d7")),
    Said("p5", 2300, "Eva", "The roller for the printer has arrived, I put it on Ben's desk."),
    Said("c11", 2304, "Ben", "@bot how do I stop it from pulling three sheets at once?", meant=("p1", "p2", "p3", "p4", "p5")),
    Said("h6", 2760, "Eva", "That was a beautiful walk, and dry until the car park!"),
    Said("h7", 2764, "Ana", "My legs disagree, but yes. Thank you for waking me."),
    Said("c12", 2770, "Dev", "@bot what did I miss on the ridge?", meant=("h1", "h4", "h6", "h7"), fine=("h2", "h3", "h5")),
)  # fmt: skip

ANSWERS: tuple[str, ...] = (
    "Both would work.",
    "I can't do that from here, I'm afraid.",
    (
        "So far: Ben would like Italian because of the good reviews, Chloe would like Indian because of the vegetarian food, and"
        " Eva can't eat gluten. The Indian place has dosa, the trattoria has gluten free pasta. I lean to the Indian place,"
        " because dosa needs no special order. What does the rest of you think, and has anybody looked at the prices?"
    ),
    "The capital of Australia is Canberra.",
    "Ana has to book today. Italian or Indian is still open.",
    "Sorry, something went wrong on my side.",
    "Take rain jackets.",
    "The van costs 89 euros.",
    "Start at seven, and have dinner early.",
    "Italian at eight.",
    "Could you tell me a bit more?",
    "A beautiful walk, dry until the car park.",
)
