"""Test the agents of Telegram chats: the default agent of new chats, and the agent that an admin chooses."""

from __future__ import annotations

import pytest

from rapport.domain.errors import InvalidInput
from rapport.storage.database import Database
from tests.channels.telegram.peer import telegram_peer
from tests.channels.telegram.test_stories import TAG
from tests.channels.telegram.town import Town, open_town, telegram_settings
from tests.support.world import open_world


async def agents_of_chats(town: Town) -> list[tuple[str, str]]:
    rows = await town.world.sql("SELECT kind, agent_id FROM conversations ORDER BY kind, agent_id")
    return [(row[0], row[1]) for row in rows]


async def make_chef(town: Town) -> None:
    document = {"id": "chef", "name": "Chef", "persona": "You are a chef.", "for_everyone": True}
    made = await town.world.http.post("/api/agents", json=document)
    assert made.status_code == 201, made.text


async def test_a_new_chat_has_the_agent_of_the_setting(database_url: str) -> None:
    async with open_town(database_url, telegram_agent="librarian") as town:
        await town.hears(town.ann_alone, town.ann, "hi")
        await town.hears(town.team, town.ben, f"{TAG} hi")
        assert await agents_of_chats(town) == [("direct", "librarian"), ("group", "librarian")]


async def test_an_unknown_agent_is_refused_at_the_start_with_all_ids(database: Database) -> None:
    async with telegram_peer() as peer:
        settings = telegram_settings(peer, (), (), telegram_agent="chef")
        with pytest.raises(InvalidInput) as refused:
            async with open_world(database.url, **settings):
                pass
    assert str(refused.value) == (
        "TELEGRAM_AGENT: there is no agent 'chef' that everyone may use; there are companion, librarian."
    )


async def test_an_admin_chooses_the_agent_and_the_bots_name_still_calls_it(town: Town) -> None:
    await make_chef(town)
    await town.hears(town.team, town.ben, "/agent chef")
    assert town.peer.sent(town.team)[-1] == "Only an admin of this group can do that."
    await town.hears(town.team, town.ann, "/agent chef")
    assert town.peer.sent(town.team)[-1] == "Chef (chef) answers here from the next message on."
    await town.hears(town.team, town.ben, "we had dinner already")
    await town.hears(town.team, town.ben, f"{TAG} what is for dinner?")
    assert town.given()[0].startswith("You are a chef.")
    assert len(town.world.model.calls) == 1
    mentions = "SELECT mentions FROM messages WHERE content LIKE '%%for dinner%%' AND role = 'user'"
    assert await town.world.sql(mentions) == [(["chef"],)]
    assert (await town.told(town.team))[-1][0] == "Chef"


async def test_in_a_direct_chat_the_person_chooses(town: Town) -> None:
    await make_chef(town)
    await town.hears(town.ann_alone, town.ann, "/agent chef")
    await town.hears(town.ann_alone, town.ann, "hi")
    assert town.given()[0].startswith("You are a chef.")
    await town.hears(town.ann_alone, town.ann, "/agent")
    assert "Chef (chef) answers here." in town.peer.sent(town.ann_alone)[-1]
    assert await agents_of_chats(town) == [("direct", "chef")]
