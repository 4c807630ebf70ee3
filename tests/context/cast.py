"""Define small chats with earlier calls: messages of people, earlier calls, answers, and a new call.

A line is `mark who when: text`. Marks: `*` belongs to the discussion that the new call means, `-` is other talk, `@` an earlier call,
`<` the agent's answer to the call above it, `?` the new call. `when` is how long ago: 5m, 3h, 2d. After it `#x` names a line,
and `>x` makes it a reply to that line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast

Mark: TypeAlias = Literal["*", "-", "@", "<", "?"]
MINUTES = {"m": 1.0, "h": 60.0, "d": 1_440.0}
_LINE = re.compile(r"([*\-@<?]) (\w+) (\d+)([mhd])(?: #(\w+))?(?: >(\w+))?: (.*)")


@dataclass(frozen=True, slots=True)
class Said:
    mark: Mark
    who: str
    minutes: float
    """The age of the message."""
    text: str
    name: str | None
    replies_to: str | None


@dataclass(frozen=True, slots=True)
class Chat:
    title: str
    lines: tuple[Said, ...]

    @property
    def call(self) -> Said:
        return self.lines[-1]


LONG = (
    "Here is how I see it. "
    + "There are good reasons for either side, and both have been named by somebody already. " * 14
)

CAST = """
# dinner, summarise after two calls
* Ann 60m: Where shall we eat on Friday?
* Ben 58m: Italian would be nice, there is Luigi's on Main Street
* Cleo 55m: I'd rather have Indian, we had pizza last week
@ Ann 54m: @bot what do you think?
< bot 54m: Both are fine. What matters most to you?
* Dan 50m: The Indian place is cheaper
@ Ben 49m: @bot any idea?
< bot 49m: I can't look up prices from here.
* Ann 45m: Luigi's has a table at eight though
? Cleo 40m: @bot summarise the discussion please

# dinner, four earlier calls by everybody, Italian or Indian
* Ann 60m: Where shall we eat on Friday?
* Ben 58m: Italian would be nice, there is Luigi's on Main Street
* Cleo 55m: I'd rather have Indian, we had pizza last week
* Dan 50m: The Indian place is cheaper
* Ann 45m: Luigi's has a table at eight though
@ Ann 44m: @bot what do you think?
< bot 44m: Both sound good to me.
@ Ben 43m: @bot who is right?
< bot 43m: That depends on what matters most to you.
@ Cleo 42m: @bot is the Indian place open on Fridays?
< bot 42m: I don't know that: it wasn't said here.
@ Dan 41m: @bot ^
< bot 41m: Could you tell me a bit more?
? Ben 40m: @bot so, Italian or Indian?

# dinner, somebody who only ever calls the agent
* Ann 60m: Where shall we eat on Friday?
* Ben 58m: Italian would be nice, there is Luigi's on Main Street
@ Zoe 57m: @bot thoughts?
< bot 57m: Luigi's is a good choice.
* Cleo 55m: I'd rather have Indian, we had pizza last week
* Dan 50m: The Indian place is cheaper
@ Zoe 49m: @bot and now?
< bot 49m: Then take the Indian one.
* Ann 45m: Luigi's has a table at eight though
? Zoe 40m: @bot what do you think?

# dinner, three worded calls with nothing of the chat in their words
* Ann 60m: Where shall we eat on Friday?
* Ben 58m: Italian would be nice, there is Luigi's on Main Street
@ Ann 57m: @bot what is the capital of Peru?
< bot 57m: Lima.
* Cleo 55m: I'd rather have Indian, we had pizza last week
* Dan 50m: The Indian place is cheaper
@ Ann 49m: @bot tell a joke
< bot 49m: Why did the chicken cross the road? To get to the other side.
* Ben 45m: Luigi's has a table at eight though
@ Ann 44m: @bot translate hello into French
< bot 44m: Bonjour.
? Ann 40m: @bot what have we decided so far?

# dinner over three days, the last silence is long
* Ann 3d: Where shall we eat on Friday?
@ Ann 3d: @bot any idea?
< bot 3d: How about something Italian?
* Ben 2d: Italian again? Indian would be a change
* Cleo 26h: the Indian restaurant is closed for holidays I think
@ Ben 25h: @bot is that right?
< bot 25h: I can't tell from here.
* Dan 5h: they open again on Thursday, so Indian works
? Ann 1m: @bot so what do you say?

# who is right then, with an off-topic long answer
* Ann 40m: The tent weighs three kilos, that is too heavy for the hike
* Ben 38m: three kilos is nothing, we are four people
* Ann 36m: but I carry the stove already
@ Ben 35m: @bot what would you do?
< bot 35m: {long}
* Cleo 30m: we could split the tent between two backpacks
? Ann 28m: @bot who is right then?

# two talks, the asker's own is meant although the other one called last
* Ann 60m: Who can fix the projector before Friday's talk?
- Mia 58m: did someone take my umbrella?
* Tom 55m: The projector lamp may be loose, I can look at it
- Leo 52m: a black umbrella? I saw one in the kitchen
* Ann 50m: The lamp is fine, it's the HDMI port of the projector
- Mia 48m: yes black, thanks, I'll look in the kitchen
@ Mia 47m: @bot what do you think?
< bot 47m: The umbrella is probably in the kitchen.
? Ann 45m: @bot can you help?

# two talks, bare calls in both
* Ann 60m: Should we move the database to Postgres 18?
- Mia 59m: anyone up for football tonight?
@ Mia 58m: @bot what do you think?
< bot 58m: Football sounds fun.
* Tom 55m: Postgres 18 has async IO, our queries would gain from it
@ Ann 54m: @bot is that right?
< bot 54m: Yes, it has async IO.
- Leo 53m: football yes, but after eight
* Ann 50m: the migration of the database would need a downtime though
- Mia 48m: we are only 7 for football so far, 3 more please
@ Leo 47m: @bot any idea?
< bot 47m: Ask in the other group.
? Tom 45m: @bot what would you do?

# two talks, a worded call names the other one
- Ann 60m: Should we move the database to Postgres 18?
* Mia 59m: anyone up for football tonight?
- Tom 55m: Postgres 18 has async IO, our queries would gain from it
@ Ann 54m: @bot is Postgres 18 stable?
< bot 54m: It has been released, so yes.
* Leo 53m: football yes, but after eight
- Ann 50m: the migration of the database would need a downtime though
* Mia 48m: we are only 7 for football so far, 3 more please
@ Ann 47m: @bot how long is the downtime for the migration of the database?
< bot 47m: That depends on its size.
? Zoe 45m: @bot how many are missing for football?

# a reply to a person's message, with calls in between
* Ann 9h #a: Can somebody water my plants in August?
@ Ann 9h: @bot ^
< bot 9h: I can't water plants, sorry.
* Tom 8h >a: Sure, how often do the plants need water?
* Ann 8h: twice a week, the ferns among the plants a bit more
- Mia 3h: the new episode is out!
- Leo 3h: no spoilers please, I haven't seen the episode
@ Mia 2h: @bot what do you think?
< bot 2h: I haven't seen it either.
? Tom 1m >a: @bot what do you think?

# a reply to the agent's answer, hours later
* Ann 9h: my sourdough doesn't rise, any tips?
* Tom 9h: is the starter of the sourdough active? feed it twice before baking
* Ann 8h: I feed the starter once a day, is that not enough?
@ Ann 8h #k: @bot what do you think?
< bot 8h #x: Twice a day is better.
- Mia 3h: is the gym open on Sunday?
- Leo 3h: gym is open from 10 to 6 on Sunday
@ Leo 3h: @bot is that right?
< bot 3h: I don't know the gym.
? Tom 1m >x: @bot why?

# a reply to an earlier bare call
* Ann 9h: Where do we meet for the museum tour?
* Tom 9h: At the main entrance of the museum I'd say, at ten
@ Tom 8h #k: @bot is that right?
< bot 8h: The museum opens at ten.
- Mia 3h: my bike has a flat tyre again :(
- Leo 3h: anybody got a bike pump for her?
@ Mia 2h: @bot any idea?
< bot 2h: A petrol station has a pump.
? Zoe 1m >k: @bot what do you think?

# going on from the answer to a worded call
* Ann 30m: which laptop should I buy for school?
* Ben 28m: something light with a good battery, a used laptop is fine for school
@ Ann 27m: @bot is a used laptop a good idea?
< bot 27m: Yes, if the battery has been replaced.
? Ann 25m: @bot and why?

# going on from the agent's own words after a wrong answer
* Ann 30m: the train to Berlin leaves at 9:04 or at 9:40
* Ben 28m: 9:04 is too early for the kids, the 9:40 train then
@ Ben 27m: @bot summarise this please
< bot 27m: You take the bus at noon.
? Ann 25m: @bot is that right?

# the asker was away while others talked and called
- Ann 2d: Did the parcel for the neighbours arrive?
@ Ann 2d: @bot any idea?
< bot 2d: I can't see parcels.
* Bob 14m: Which laptop would you buy for school?
* Tom 12m: Something light with a good battery, a used laptop is fine for school
@ Bob 11m: @bot thoughts?
< bot 11m: A used one is fine.
* Bob 8m: and how much memory should a laptop for school have?
? Ann 1m: @bot what do you think?

# one person calls five times in a row, then asks for the talk
* Ann 90m: We need a birthday present for mum
* Ben 88m: A book about gardening maybe?
* Ann 85m: she has so many gardening books, maybe a tree for the garden
* Cleo 80m: a cherry tree! mum loves cherries
@ Ann 79m: @bot
< bot 79m: A cherry tree is a lovely present.
@ Ann 78m: @bot ^
< bot 78m: As I said, the tree.
@ Ann 77m: @bot help
< bot 77m: Could you tell me a bit more?
@ Ann 76m: @bot is that right?
< bot 76m: Sorry, something went wrong on my side.
@ Ann 75m: @bot any idea?
< bot 75m: {long}
? Ann 74m: @bot please sum up what was said

# answers that repeat both talks word by word
* Ann 60m: how much does a ticket for the zoo cost?
- Mia 59m: my bike has a flat tyre again :(
* Tom 57m: a ticket for the zoo is 18 euros, kids pay half of it
- Leo 56m: the bike shop on Elm Street is open until six
@ Mia 55m: @bot summarise this please
< bot 55m: So far: how much does a ticket for the zoo cost? my bike has a flat tyre. 18 euros. the bike shop on Elm Street.
* Ann 53m: so about 54 for all of us, is there a family ticket for the zoo?
- Mia 52m: thanks, I'll bring the bike to the shop
@ Leo 51m: @bot what do you think?
< bot 51m: So far: a ticket for the zoo, a family ticket, the bike shop on Elm Street is open until six. I lean to yes.
? Ann 50m: @bot what do you think?

# a call by a reply to somebody else's talk, then the asker's bare call again
- Tom 60m: the printer is out of toner again
* Ann 58m #a: Which hotel do we take in Rome?
* Ben 57m: the Aurora hotel is near the station, the Roma is quieter
- Leo 50m: who has the key of the storage room? I need the toner
@ Tom 48m >a: @bot what do you think?
< bot 48m: The quieter hotel, I would say.
* Ann 45m: quieter is good, but is the hotel Roma far from the station?
? Tom 44m: @bot and now?

# three people, German, bare and worded calls
* Anna 60m: Wir brauchen ein Restaurant für das Treffen
* Bernd 58m: Das thailändische Restaurant in der Hauptstraße?
@ Anna 57m: @bot was meinst du?
< bot 57m: Klingt gut.
* Carla 50m: Thailändisch mag mein Bruder nicht, lieber ein Restaurant mit Pizza
@ Bernd 49m: @bot kannst du uns helfen?
< bot 49m: Ich kenne keine Restaurants in der Nähe.
? Carla 45m: @bot fasse bitte die Diskussion zusammen

# only the asker talks, with calls in between
* Ann 50m: I'd like to paint the hallway this month
@ Ann 49m: @bot any idea?
< bot 49m: White is always right.
* Ann 40m: a warm grey for the hallway perhaps?
@ Ann 39m: @bot thoughts?
< bot 39m: Grey is fine, too.
* Ben 30m: grey makes a hallway look narrow
? Ann 20m: @bot what would you do?

# the call comes days after the talk and its calls
* Ann 6d: Who writes the minutes of the meeting?
* Ben 6d: I did the minutes last time, maybe Ann?
@ Ben 6d: @bot who is right?
< bot 6d: I don't know that: it wasn't said here.
* Ann 6d: ok I'll write the minutes, but who sends them around?
@ Cleo 5d: @bot any idea?
< bot 5d: Whoever writes them could send them.
? Ben 1m: @bot what have we decided so far?

# without replies by the platform, others speak between a call and its answer
* Ann 40m: The login bug only hits old browsers
@ Ann 39m: @bot what do you think?
- Mia 39m: has anyone seen the cat today?
< bot 38m: Old browsers are rare.
* Tom 35m: could we release without the fix of the login bug?
- Leo 34m: the cat slept in the garage
@ Mia 33m: @bot thoughts?
- Mia 33m: she's back, the cat I mean
< bot 32m: Good that she is back.
? Ann 30m: @bot what do you think?

# many calls about one talk, then a new talk begins
- Ann 5h: Which film do we watch tonight?
@ Ann 5h: @bot any idea?
< bot 5h: A comedy.
- Ben 5h: a film with aliens please
@ Ben 5h: @bot what do you think?
< bot 5h: Aliens it is.
@ Ann 4h: @bot is that right?
< bot 4h: Yes.
* Cleo 20m: the heating in the flat makes strange noises
* Dan 18m: did you call the plumber about the heating?
* Cleo 15m: yes, the plumber comes tomorrow
@ Dan 14m: @bot thoughts?
< bot 14m: A plumber is the right one to call.
? Cleo 10m: @bot what would you do?

# the agent's long answers do not push people out
* Ann 60m: Let us choose a name for the boat
* Ben 58m: I like Seagull as the name of the boat
@ Ann 57m: @bot any idea?
< bot 57m: {long}
* Cleo 55m: Seagull is taken, the boat of our neighbours has that name
@ Ben 54m: @bot what do you think?
< bot 54m: {long}
* Ann 50m: then Albatross, or is that name bad luck for a boat?
@ Cleo 49m: @bot is that right?
< bot 49m: {long}
@ Ann 48m: @bot who is right?
< bot 48m: {long}
? Ben 45m: @bot which one shall we take?
"""


def chats() -> list[Chat]:
    """Return all chats."""
    found: list[Chat] = []
    for block in CAST.replace("{long}", LONG.strip()).strip().split("\n\n"):
        title, *lines = block.split("\n")
        found.append(Chat(title.removeprefix("# "), tuple(_said(line) for line in lines)))
    return found


def _said(line: str) -> Said:
    read = _LINE.fullmatch(line)
    assert read, line
    mark, who, count, unit, name, replies_to, text = read.groups()
    return Said(cast("Mark", mark), who, int(count) * MINUTES[unit], text, name, replies_to)
