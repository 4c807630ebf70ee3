"""Test the simulated Telegram with python-telegram-bot's own client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from telegram.error import (
    BadRequest,
    ChatMigrated,
    Conflict,
    Forbidden,
    InvalidToken,
    NetworkError,
    RetryAfter,
    TelegramError,
    TimedOut,
)

from telegram import (
    Bot,
    BotCommand,
    BotCommandScopeAllGroupChats,
    ForceReply,
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    ReplyParameters,
)
from tests.channels.telegram.peer import TelegramPeer, babbles, fails, flood, hangs, resets, telegram_peer
from tests.channels.telegram.peer_text import Unparsable, found_entities, parse_html
from tests.support.cases import every_case
from tests.support.waiting import LIMIT_SECONDS


@pytest.fixture
async def peer() -> AsyncGenerator[TelegramPeer]:
    async with telegram_peer() as opened:
        yield opened


@pytest.fixture
async def bot(peer: TelegramPeer) -> AsyncGenerator[Bot]:
    async with Bot(peer.token, base_url=f"{peer.url}/bot") as client:
        yield client


def client_of(peer: TelegramPeer, token: str) -> Bot:
    return Bot(token, base_url=f"{peer.url}/bot")


async def test_a_bot_knows_itself(peer: TelegramPeer, bot: Bot) -> None:
    peer.platform.can_read_all_group_messages = False
    me = await bot.get_me()
    assert (me.id, me.username, me.is_bot, me.can_read_all_group_messages) == (peer.bot.id, "rapport_bot", True, False)


async def test_a_wrong_token_and_a_wrong_method_are_refused(peer: TelegramPeer) -> None:
    with pytest.raises(InvalidToken, match="Unauthorized"):
        await client_of(peer, "1:wrong").get_me()
    async with aiohttp.ClientSession() as session:
        for path, status in ((f"bot{peer.token}/noSuchMethod", 404), ("botnonsense/getMe", 404), ("bot1:x/getMe", 401)):
            async with session.post(f"{peer.url}/{path}") as response:
                assert (response.status, (await response.json())["ok"]) == (status, False)


async def test_parameters_may_come_in_every_way(peer: TelegramPeer) -> None:
    ann = peer.private(peer.person("Ann"))
    address = f"{peer.url}/bot{peer.token}/sendMessage"
    form = aiohttp.FormData(default_to_multipart=True)
    form.add_field("chat_id", str(ann.id))
    form.add_field("text", "multipart")
    async with aiohttp.ClientSession() as session:
        for options in (
            {"params": {"chat_id": ann.id, "text": "query"}},
            {"data": {"chat_id": ann.id, "text": "form"}},
            {"json": {"chat_id": ann.id, "text": "json"}},
            {"data": form},
        ):
            sent: Any = options
            async with session.post(address, **sent) as response:
                assert response.status == 200, await response.text()
    assert peer.sent(ann) == ["query", "form", "json", "multipart"]
    assert [call.params["chat_id"] for call in peer.calls("sendMessage")] == [ann.id] * 4


async def test_updates_wait_until_they_are_confirmed(peer: TelegramPeer, bot: Bot) -> None:
    ann = peer.person("Ann", username="ann")
    chat = peer.private(ann)
    said = [chat.says(ann, f"number {n}") for n in range(5)]
    first = await bot.get_updates(limit=2)
    assert [one.update_id for one in first] == [said[0].update_id, said[1].update_id]
    assert [one.update_id for one in await bot.get_updates(limit=2)] == [one.update_id for one in first]
    rest = await bot.get_updates(offset=first[-1].update_id + 1)
    assert [one.message.text for one in rest if one.message] == ["number 2", "number 3", "number 4"]
    last = await bot.get_updates(offset=-1)
    assert [one.update_id for one in last] == [said[4].update_id]
    assert peer.updates.pending == [said[4].update_id]
    assert await bot.get_updates(offset=last[0].update_id + 1) == ()


async def test_a_long_poll_ends_with_the_first_message(peer: TelegramPeer, bot: Bot) -> None:
    ann = peer.person("Ann")
    chat = peer.private(ann)
    poll = asyncio.create_task(bot.get_updates(timeout=30))
    await peer.until(lambda: peer.calls("getUpdates"))
    chat.says(ann, "hello")
    (update,) = await asyncio.wait_for(poll, LIMIT_SECONDS)
    assert update.message is not None
    assert (update.message.text, update.message.chat.id) == ("hello", chat.id)


async def test_only_the_kinds_that_were_asked_for_come(peer: TelegramPeer, bot: Bot) -> None:
    ann = peer.person("Ann")
    chat = peer.private(ann)
    await bot.get_updates(allowed_updates=["edited_message"])
    said = chat.says(ann, "helo")
    chat.edits(said, "hello")
    (update,) = await bot.get_updates()
    assert update.edited_message is not None
    assert update.edited_message.edit_date is not None
    assert update.edited_message.text == "hello"


async def test_the_older_of_two_polls_is_ended(peer: TelegramPeer, bot: Bot) -> None:
    older = asyncio.create_task(bot.get_updates(timeout=30))
    await peer.until(lambda: peer.calls("getUpdates"))
    async with client_of(peer, peer.token) as other:
        newer = asyncio.create_task(other.get_updates(timeout=30))
        with pytest.raises(Conflict, match="terminated by other getUpdates request"):
            await asyncio.wait_for(older, LIMIT_SECONDS)
        ann = peer.person("Ann")
        peer.private(ann).says(ann, "hello")
        assert len(await asyncio.wait_for(newer, LIMIT_SECONDS)) == 1


async def test_a_poll_whose_client_is_gone_takes_nothing_with_it(peer: TelegramPeer, bot: Bot) -> None:
    with pytest.raises(TimedOut):
        await bot.get_updates(timeout=30, read_timeout=-29.8)
    ann = peer.person("Ann")
    peer.private(ann).says(ann, "hello")
    assert len(await bot.get_updates()) == 1


async def test_a_webhook_gets_every_update_in_order_until_it_takes_it(peer: TelegramPeer, bot: Bot) -> None:
    ann = peer.person("Ann")
    chat = peer.private(ann)
    came: list[tuple[str, str | None]] = []
    statuses = [503, 500, 200]

    async def hook(request: web.Request) -> web.Response:
        body = await request.json()
        came.append((body["message"]["text"], request.headers.get("X-Telegram-Bot-Api-Secret-Token")))
        return web.Response(status=statuses.pop(0) if statuses else 200)

    app = web.Application()
    app.router.add_post("/hook", hook)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        address = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
        await bot.set_webhook(address, secret_token="s3cret")
        with pytest.raises(Conflict, match="webhook is active"):
            await bot.get_updates()
        chat.says(ann, "one")
        chat.says(ann, "two")
        await peer.until(lambda: not peer.updates.pending)
        assert came == [("one", "s3cret")] * 3 + [("two", "s3cret")]
        info = await bot.get_webhook_info()
        assert (info.url, info.pending_update_count) == (address, 0)
        assert "500" in (info.last_error_message or "")
        await bot.delete_webhook()
        chat.says(ann, "three")
        assert len(await bot.get_updates()) == 1
    finally:
        await runner.cleanup()
    with pytest.raises(BadRequest, match=r"(?i)https"):
        await bot.set_webhook("http://example.org/hook")


async def test_updates_can_come_again_and_out_of_order(peer: TelegramPeer, bot: Bot) -> None:
    ann = peer.person("Ann")
    chat = peer.private(ann)
    peer.repeats_updates(3)
    peer.shuffles_updates(seed=1)
    ids = [chat.says(ann, f"number {n}").update_id for n in range(10)]
    came: list[int] = []
    offset = 0
    while updates := await bot.get_updates(offset=offset):
        came += [update.update_id for update in updates]
        offset = max(came) + 1
    assert sorted(came) == sorted(ids * 3)
    assert came[:10] != ids
    peer.heals()
    peer.redeliver(ids[0])
    assert [one.update_id for one in await bot.get_updates(offset=offset)] == ids[:1]
    assert await bot.get_updates(offset=offset) == ()


async def test_people_talk_in_groups_as_the_real_ones_do(peer: TelegramPeer, bot: Bot) -> None:
    ann, ben = peer.person("Ann", username="ann"), peer.person("Ben")
    team = peer.group("Team", [ann, ben], admins=[ben])
    first = team.says(ann, "🎉 @Rapport_Bot and @bot, see #plan /help@rapport_bot", date=1_700_000_000.7)
    team.says(ben, "ok", reply_to=first)
    one, two = [update.message for update in await bot.get_updates()]
    assert one is not None
    assert two is not None
    entities = {kind: one.parse_entity(entity) for entity in one.entities for kind in [str(entity.type)]}
    assert entities == {"mention": "@Rapport_Bot", "hashtag": "#plan", "bot_command": "/help@rapport_bot"}
    assert (one.message_id, two.message_id, one.date.timestamp()) == (1, 2, 1_700_000_000)
    assert two.reply_to_message is not None
    assert two.reply_to_message.text == one.text
    assert (two.message_thread_id, two.is_topic_message) == (first.message_id, None)
    member, owner = await bot.get_chat_member(team.id, ben.id), await bot.get_chat_member(team.id, ann.id)
    assert (member.status, owner.status) == ("administrator", "creator")
    assert (await bot.get_chat(team.id)).title == "Team"


async def test_ids_are_counted_per_supergroup_and_together_elsewhere(peer: TelegramPeer) -> None:
    ann = peer.person("Ann")
    direct, basic = peer.private(ann), peer.group("Old", [ann], supergroup=False)
    one, two = peer.group("One", [ann]), peer.group("Two", [ann])
    assert [chat.says(ann, "x").message_id for chat in (direct, basic, direct, one, two, one)] == [1, 2, 3, 1, 1, 2]


async def test_a_topic_is_a_thread_that_must_exist(peer: TelegramPeer, bot: Bot) -> None:
    ann = peer.person("Ann")
    forum = peer.group("Forum", [ann], forum=True)
    travel = forum.topic("Travel")
    forum.says(ann, "Where to?", topic=travel)
    message = (await bot.get_updates())[-1].message
    assert message is not None
    assert (message.message_thread_id, message.is_topic_message) == (travel, True)
    assert message.reply_to_message is not None
    assert message.reply_to_message.forum_topic_created is not None
    sent = await bot.send_message(forum.id, "Rome", message_thread_id=travel)
    assert (sent.message_thread_id, peer.posted(forum)[0].topic, peer.posted(forum)[0].reply_to) == (
        travel,
        travel,
        None,
    )
    for wrong in (1, 999):
        with pytest.raises(BadRequest, match="thread not found"):
            await bot.send_message(forum.id, "Rome", message_thread_id=wrong)


async def test_privacy_mode_hides_what_is_not_for_the_bot(bot: Bot, peer: TelegramPeer) -> None:
    peer.platform.can_read_all_group_messages = False
    ann = peer.person("Ann")
    team = peer.group("Team", [ann])
    mine = await bot.send_message(team.id, "Hello")
    team.says(ann, "nobody's business")
    team.says(ann, "/help@other_bot")
    team.says(ann, "@rapport_bot hi")
    team.says(ann, "/help")
    team.says(ann, "sure", reply_to=team.find(mine.message_id))
    assert [one.message.text for one in await bot.get_updates() if one.message] == ["@rapport_bot hi", "/help", "sure"]


async def test_a_reply_needs_its_message(peer: TelegramPeer, bot: Bot) -> None:
    ann = peer.person("Ann")
    chat = peer.private(ann)
    asked = chat.says(ann, "really?")
    sent = await bot.send_message(chat.id, "yes", reply_parameters=ReplyParameters(asked.message_id))
    assert sent.reply_to_message is not None
    assert sent.reply_to_message.message_id == asked.message_id
    chat.deletes(asked)
    with pytest.raises(BadRequest, match="Message to be replied not found"):
        await bot.send_message(chat.id, "no", reply_parameters=ReplyParameters(asked.message_id))
    gone = ReplyParameters(asked.message_id, allow_sending_without_reply=True)
    assert (await bot.send_message(chat.id, "maybe", reply_parameters=gone)).reply_to_message is None


async def test_a_text_has_1_to_4096_utf16_units_after_parsing(peer: TelegramPeer, bot: Bot) -> None:
    chat = peer.private(peer.person("Ann"))
    await bot.send_message(chat.id, "<b>" + "😀" * 2048 + "</b>", parse_mode="HTML")
    for text in ("😀" * 2048 + "x", "&amp;" * 4097):
        with pytest.raises(BadRequest, match="too long"):
            await bot.send_message(chat.id, text, parse_mode="HTML")
    for text in ("<b></b>", " \n "):
        with pytest.raises(BadRequest, match="text is empty"):
            await bot.send_message(chat.id, text, parse_mode="HTML")
    assert len(peer.sent(chat)) == 1


async def test_html_arrives_as_entities(peer: TelegramPeer, bot: Bot) -> None:
    chat = peer.private(peer.person("Ann"))
    html = (
        "😀 <b>bold <i>both</i></b> <a href='https://example.org/?a=1&amp;b=2'>link</a> 1 &lt; 2 "
        '<pre><code class="language-python">x = 1</code></pre> <blockquote expandable>said</blockquote>  '
    )
    sent = await bot.send_message(chat.id, html, parse_mode="HTML")
    assert sent.text == "😀 bold both link 1 < 2 x = 1 said"
    found = [(str(one.type), sent.parse_entity(one)) for one in sent.entities]
    assert found == [
        ("bold", "bold both"),
        ("italic", "both"),
        ("text_link", "link"),
        ("pre", "x = 1"),
        ("expandable_blockquote", "said"),
    ]
    assert [one.url for one in sent.entities if one.url] == ["https://example.org/?a=1&b=2"]
    assert [one.language for one in sent.entities if one.language] == ["python"]


@every_case(
    ("html", "words"),
    [
        ("a < b", 'Unsupported start tag "" at byte offset 2'),
        ("é<p>x</p>", 'Unsupported start tag "p" at byte offset 2'),
        ("<b>x", 'Can\'t find end tag corresponding to start tag "b"'),
        ("<b><i>x</b></i>", 'Unmatched end tag at byte offset 7, expected "</i>", found "</b>"'),
        ("x</b>", "Unexpected end tag at byte offset 1"),
        ("<b", "Unclosed start tag at byte offset 0"),
        ("<a href=x", "Unclosed start tag at byte offset 0"),
        ("<b>x</b", "Unclosed end tag at byte offset 4"),
        ("<span>x</span>", 'Tag "span" must have class "tg-spoiler" at byte offset 0'),
        ("<br/>", 'Unsupported start tag "br/" at byte offset 0'),
        ("&#xd83d;", "invalid Unicode characters"),
    ],
)
def test_html_is_read_strictly(html: str, words: str) -> None:
    with pytest.raises(Unparsable) as error:
        parse_html(html)
    assert words in str(error.value)


def test_what_is_harmless_is_let_through() -> None:
    assert parse_html("a > b &nbsp; & &amp;lt; &#128512;") == ("a > b &nbsp; & &lt; 😀", [])
    assert parse_html("<a href='nowhere'>x</a>") == ("x", [])
    text, entities = parse_html("<b>one <code>two</code> three</b>")
    assert text == "one two three"
    assert [(one["type"], one["offset"], one["length"]) for one in entities] == [
        ("bold", 0, 4),
        ("code", 4, 3),
        ("bold", 7, 6),
    ]


def test_an_address_is_no_mention_and_no_command() -> None:
    assert [one["type"] for one in found_entities("a@example.org https://t.me/some/path and/or @bot")] == ["url"]


async def test_chats_that_refuse_the_bot_give_the_platforms_error(peer: TelegramPeer, bot: Bot) -> None:
    ann, stranger = peer.person("Ann"), peer.person("Stranger")
    direct, team = peer.private(ann), peer.group("Team", [ann])
    with pytest.raises(BadRequest, match="Chat not found"):
        await bot.send_message(1, "x")
    with pytest.raises(Forbidden, match="can't initiate"):
        await bot.send_message(stranger.id, "x")
    ann.blocks_bot()
    with pytest.raises(Forbidden, match="blocked by the user"):
        await bot.send_message(direct.id, "x")
    team.kicks_bot()
    with pytest.raises(Forbidden, match="kicked from the supergroup chat"):
        await bot.send_chat_action(team.id, "typing")
    changes = [one.my_chat_member for one in await bot.get_updates()]
    assert [change and change.new_chat_member.status for change in changes] == ["kicked", "kicked"]
    ann.unblocks_bot()
    await bot.send_message(direct.id, "welcome back")


async def test_a_group_moves(peer: TelegramPeer, bot: Bot) -> None:
    ann = peer.person("Ann")
    old = peer.group("Team", [ann], supergroup=False)
    old.says(ann, "hi")
    new = old.migrates()
    with pytest.raises(ChatMigrated) as moved:
        await bot.send_message(old.id, "x")
    assert moved.value.new_chat_id == new.id
    assert (await bot.send_message(new.id, "x")).message_id == 2
    _, left, entered = [one.message for one in await bot.get_updates()]
    assert left is not None
    assert entered is not None
    assert (left.chat.id, left.migrate_to_chat_id) == (old.id, new.id)
    assert (entered.chat.id, entered.migrate_from_chat_id) == (new.id, old.id)


async def test_buttons_are_pressed_and_answered(peer: TelegramPeer, bot: Bot) -> None:
    ann = peer.person("Ann")
    chat = peer.private(ann)
    keyboard = InlineKeyboardMarkup([[InlineKeyboardButton("Yes", callback_data="forget:yes")]])
    sent = await bot.send_message(chat.id, "Forget?", reply_markup=keyboard)
    (message,) = peer.posted(chat)
    press = chat.presses(ann, message, "forget:yes")
    query = (await bot.get_updates())[-1].callback_query
    assert query is not None
    assert (query.data, query.from_user.id) == ("forget:yes", ann.id)
    await bot.answer_callback_query(query.id, text="Done")
    assert press.answer is not None
    assert press.answer["text"] == "Done"
    edited = await bot.edit_message_text("Forgotten.", chat.id, sent.message_id)
    assert not isinstance(edited, bool)
    assert (edited.text, edited.reply_markup, message.buttons) == ("Forgotten.", None, [])
    with pytest.raises(BadRequest, match="not modified"):
        await bot.edit_message_text("Forgotten.", chat.id, sent.message_id)
    with pytest.raises(BadRequest, match="not modified"):
        await bot.edit_message_reply_markup(chat.id, sent.message_id)
    with pytest.raises(BadRequest, match="can't be edited"):
        await bot.edit_message_text("x", chat.id, chat.says(ann, "mine").message_id)
    with pytest.raises(BadRequest, match=r"(?i)query is too old"):
        await bot.answer_callback_query("1")
    long = InlineKeyboardMarkup([[InlineKeyboardButton("x", callback_data="é" * 33)]])
    with pytest.raises(BadRequest, match=r"(?i)button_data_invalid"):
        await bot.send_message(chat.id, "x", reply_markup=long)
    await bot.send_message(chat.id, "x", reply_markup=ForceReply())
    await bot.delete_message(chat.id, sent.message_id)
    assert peer.sent(chat) == ["x"]


async def test_commands_are_kept_by_scope(peer: TelegramPeer, bot: Bot) -> None:
    await bot.set_my_commands([BotCommand("help", "What I can do")], scope=BotCommandScopeAllGroupChats())
    assert await bot.get_my_commands() == ()
    assert [one.command for one in await bot.get_my_commands(scope=BotCommandScopeAllGroupChats())] == ["help"]
    with pytest.raises(BadRequest):
        await bot.set_my_commands([("Help!", "no")])


async def test_faults_come_when_they_are_planned(peer: TelegramPeer, bot: Bot) -> None:
    chat = peer.private(peer.person("Ann"))

    async def says(text: str) -> str:
        try:
            await bot.send_message(chat.id, text, read_timeout=0.2)
        except TelegramError as error:
            return type(error).__name__
        return "sent"

    peer.will(flood(7), on="sendMessage")
    with pytest.raises(RetryAfter, match="Retry in 7 seconds"):
        await bot.send_message(chat.id, "flood")
    for status in (500, 502, 503, 504):
        peer.will(fails(status), on="sendMessage")
        peer.will(fails(status, is_json=False), on="sendMessage")
        assert [await says(f"{status}"), await says(f"{status}")] == [NetworkError.__name__] * 2
    assert peer.sent(chat) == []
    for fault, error, arrives in (
        (resets(), "NetworkError", False),
        (resets(after=True), "NetworkError", True),
        (hangs(), "TimedOut", False),
        (hangs(after=True), "TimedOut", True),
        (babbles(), "TelegramError", True),
        (fails(502, after=True), "NetworkError", True),
    ):
        text = f"{fault.how} {fault.after}"
        peer.will(fault, on="sendMessage")
        assert await says(text) == error
        assert (text in peer.sent(chat)) is arrives
        assert peer.calls("sendMessage")[-1].accepted is arrives
    assert await says("at last") == "sent"
    peer.will(resets(), on="sendMessage", times=2, skip=1)
    assert [await says("x") for _ in range(4)] == ["sent", "NetworkError", "NetworkError", "sent"]
    assert (await bot.get_me()).id == peer.bot.id


async def test_a_revoked_token_ends_the_poll_too(peer: TelegramPeer, bot: Bot) -> None:
    poll = asyncio.create_task(bot.get_updates(timeout=30))
    await peer.until(lambda: peer.calls("getUpdates"))
    peer.revokes_token()
    with pytest.raises(InvalidToken):
        await asyncio.wait_for(poll, LIMIT_SECONDS)
    with pytest.raises(InvalidToken):
        await bot.get_me()
