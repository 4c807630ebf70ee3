"""Simulate the methods of the Bot API, with Telegram's own error texts."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

from tests.channels.telegram.peer_chats import Chat, Platform, Posted, membership
from tests.channels.telegram.peer_faults import Refusal, bad
from tests.channels.telegram.peer_text import MAX_LENGTH, Unparsable, utf16, written
from tests.channels.telegram.peer_updates import Webhook

Json = dict[str, Any]
Params = Mapping[str, Any]

_ACTIONS = {
    "typing",
    "upload_photo",
    "record_video",
    "upload_video",
    "record_voice",
    "upload_voice",
    "upload_document",
    "choose_sticker",
    "find_location",
    "record_video_note",
    "upload_video_note",
}
_PARSE_MODES = {"", "html", "markdown", "markdownv2"}
_NUMBERS = {"chat_id", "message_id", "message_thread_id", "offset", "limit", "timeout", "user_id", "max_connections"}
_TRUTHS = {
    "allow_sending_without_reply",
    "disable_notification",
    "drop_pending_updates",
    "show_alert",
    "protect_content",
}
_STRUCTURES = {
    "reply_parameters": "reply parameters",
    "reply_markup": "reply keyboard markup",
    "link_preview_options": "link preview options",
    "allowed_updates": "allowed updates",
    "entities": "message entities",
    "commands": "commands",
    "scope": "bot command scope",
}
_NOT_MODIFIED = (
    "message is not modified: specified new message content and reply markup are exactly the same as a current content "
    "and reply markup of the message"
)


def readable(params: Mapping[str, Any]) -> Json:
    """Parameters as values: a form has only strings for numbers, truths and structures."""
    return {key: _value(key, value) for key, value in params.items()}


def _value(key: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if key in _NUMBERS and re.fullmatch(r"-?\d+", value):
        return int(value)
    if key in _TRUTHS:
        return value.lower() in ("true", "1", "yes")
    if key in _STRUCTURES:
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


class Methods:
    """Call a method by its name; Refusal is what the bot is told instead of a result."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self.commands: dict[str, list[Json]] = {}
        """Return the commands of setMyCommands, by scope and language ("default", "all_group_chats/de", …)."""
        self._known: dict[str, Callable[[Params], Awaitable[Any]]] = {
            method.__name__.replace("_", ""): method
            for method in (
                self.get_me,
                self.get_updates,
                self.set_webhook,
                self.delete_webhook,
                self.get_webhook_info,
                self.send_message,
                self.send_chat_action,
                self.edit_message_text,
                self.edit_message_reply_markup,
                self.delete_message,
                self.answer_callback_query,
                self.set_my_commands,
                self.delete_my_commands,
                self.get_my_commands,
                self.get_chat,
                self.get_chat_member,
                self.get_chat_administrators,
            )
        }

    def knows(self, method: str) -> bool:
        return method.lower() in self._known

    async def call(self, method: str, params: Params) -> Any:
        for key, name in _STRUCTURES.items():
            if isinstance(params.get(key), str) and params[key]:
                raise bad(f"can't parse {name} JSON object")
        return await self._known[method.lower()](params)

    async def get_me(self, params: Params) -> Json:
        return self._platform.bot.raw | {
            "can_join_groups": True,
            "can_read_all_group_messages": self._platform.can_read_all_group_messages,
            "supports_inline_queries": False,
            "can_connect_to_business": False,
            "has_main_web_app": False,
        }

    async def get_updates(self, params: Params) -> list[Json]:
        if "allowed_updates" in params:
            self._platform.updates.allowed = params["allowed_updates"] or ()
        return await self._platform.updates.get(
            int(params.get("offset", 0)), int(params.get("limit", 100)), float(params.get("timeout", 0))
        )

    async def set_webhook(self, params: Params) -> bool:
        url, secret = str(params.get("url", "")), params.get("secret_token")
        if not url:
            return await self.delete_webhook(params)
        if not re.match(r"https://|http://(127\.|localhost[:/])", url):
            raise bad("bad webhook: An HTTPS URL must be provided for webhook")
        if secret and not re.fullmatch(r"[A-Za-z0-9_-]{1,256}", secret):
            raise bad("secret token contains unallowed characters")
        updates = self._platform.updates
        if "allowed_updates" in params:
            updates.allowed = params["allowed_updates"] or ()
        if params.get("drop_pending_updates"):
            updates.drop()
        updates.set_webhook(Webhook(url, secret))
        return True

    async def delete_webhook(self, params: Params) -> bool:
        self._platform.updates.delete_webhook()
        if params.get("drop_pending_updates"):
            self._platform.updates.drop()
        return True

    async def get_webhook_info(self, params: Params) -> Json:
        updates = self._platform.updates
        webhook = updates.webhook
        info: Json = {
            "url": webhook.url if webhook else "",
            "has_custom_certificate": False,
            "pending_update_count": len(updates.pending),
        }
        if webhook and webhook.last_error:
            info |= {"last_error_date": webhook.last_error_at, "last_error_message": webhook.last_error}
        return info | ({"allowed_updates": list(updates.allowed)} if updates.allowed else {})

    async def send_message(self, params: Params) -> Json:
        chat = self._chat(params)
        content = _content(params)
        topic = self._topic(chat, params)
        reply_to = _replied(chat, params.get("reply_parameters"))
        body = content | _keyboard(params.get("reply_markup"))
        return chat.post(self._platform.bot, body, reply_to=reply_to, topic=topic).raw

    async def send_chat_action(self, params: Params) -> bool:
        chat = self._chat(params)
        if params.get("action") not in _ACTIONS:
            raise bad("wrong parameter action in request")
        chat.actions.append((params["action"], self._topic(chat, params)))
        return True

    async def edit_message_text(self, params: Params) -> Json:
        message = self._own(params)
        return self._change(message, _content(params) | _keyboard(params.get("reply_markup")))

    async def edit_message_reply_markup(self, params: Params) -> Json:
        message = self._own(params)
        kept = {key: message.raw[key] for key in ("text", "entities") if key in message.raw}
        return self._change(message, kept | _keyboard(params.get("reply_markup")))

    async def delete_message(self, params: Params) -> bool:
        chat = self._chat(params)
        message = chat.find(int(params.get("message_id", 0)))
        if message is None:
            raise bad("message to delete not found")
        if not message.by_bot and chat.kind != "private" and chat.bot_status != "administrator":
            raise bad("message can't be deleted")
        chat.deletes(message)
        return True

    async def answer_callback_query(self, params: Params) -> bool:
        press = self._platform.callbacks.get(str(params.get("callback_query_id")))
        if press is None:
            raise bad("query is too old and response timeout expired or query ID is invalid")
        if utf16(str(params.get("text", ""))) > 200:
            raise bad("MESSAGE_TOO_LONG")
        press.answer = dict(params)
        return True

    async def set_my_commands(self, params: Params) -> bool:
        commands: list[Json] = params.get("commands") or []
        if len(commands) > 100:
            raise bad("BOT_COMMANDS_TOO_MUCH")
        for one in commands:
            if not re.fullmatch(r"[a-z0-9_]{1,32}", str(one.get("command", "")).removeprefix("/")):
                raise bad("BOT_COMMAND_INVALID")
            if not 1 <= len(str(one.get("description", ""))) <= 256:
                raise bad("BOT_COMMAND_DESCRIPTION_INVALID")
        self.commands[_audience(params)] = commands
        return True

    async def delete_my_commands(self, params: Params) -> bool:
        self.commands.pop(_audience(params), None)
        return True

    async def get_my_commands(self, params: Params) -> list[Json]:
        return self.commands.get(_audience(params), [])

    async def get_chat(self, params: Params) -> Json:
        return self._chat(params).raw | {
            "accent_color_id": 0,
            "max_reaction_count": 11,
            "accepted_gift_types": dict.fromkeys(
                ("unlimited_gifts", "limited_gifts", "unique_gifts", "premium_subscription", "gifts_from_channels"),
                False,
            ),
        }

    async def get_chat_member(self, params: Params) -> Json:
        chat, user_id = self._chat(params), int(params.get("user_id", 0))
        if user_id == self._platform.bot.id:
            return membership(chat.bot_status, self._platform.bot.raw)
        person = self._platform.people.get(user_id)
        if person is None:
            raise bad("invalid user_id specified")
        return membership(_standing(chat, user_id), person.raw)

    async def get_chat_administrators(self, params: Params) -> list[Json]:
        chat = self._chat(params)
        if chat.kind == "private":
            raise bad("there are no administrators in the private chat")
        return [membership(_standing(chat, person.id), person.raw) for person in [chat.people[0], *chat.admins]]

    def _chat(self, params: Params) -> Chat:
        """The chat that is meant, if the bot may act in it."""
        if "chat_id" not in params or params["chat_id"] == "":
            raise bad("chat_id is empty")
        chat = self._platform.chats.get(params["chat_id"])
        if chat is None:
            if params["chat_id"] in self._platform.people:
                raise Refusal(403, "Forbidden: bot can't initiate conversation with a user")
            raise bad("chat not found")
        if chat.migrated_to is not None:
            words = "group chat was upgraded to a supergroup chat"
            raise bad(words, migrate_to_chat_id=chat.migrated_to.id)
        if chat.kind == "private" and chat.people[0].has_blocked_bot:
            raise Refusal(403, "Forbidden: bot was blocked by the user")
        if chat.bot_status == "kicked":
            raise Refusal(403, f"Forbidden: bot was kicked from the {chat.kind} chat")
        return chat

    def _topic(self, chat: Chat, params: Params) -> int | None:
        topic = params.get("message_thread_id")
        if topic is not None and topic not in chat.topics:
            raise bad("message thread not found")
        return topic

    def _own(self, params: Params) -> Posted:
        message = self._chat(params).find(int(params.get("message_id", 0)))
        if message is None:
            raise bad("message to edit not found")
        if not message.by_bot:
            raise bad("message can't be edited")
        return message

    def _change(self, message: Posted, content: Json) -> Json:
        keys = ("text", "entities", "reply_markup")
        if {key: message.raw[key] for key in keys if key in message.raw} == content:
            raise bad(_NOT_MODIFIED)
        for key in keys:
            message.raw.pop(key, None)
        message.raw |= content | {"edit_date": int(self._platform.clock())}
        return message.raw


def _content(params: Params) -> Json:
    """The text of a message as it will be seen."""
    mode = str(params.get("parse_mode") or "")
    if mode.lower() not in _PARSE_MODES:
        raise bad("unsupported parse_mode")
    try:
        text, entities = written(str(params.get("text") or ""), mode)
    except Unparsable as error:
        raise bad(f"can't parse entities: {error}") from error
    if not text:
        raise bad("message text is empty")
    if utf16(text) > MAX_LENGTH:
        raise bad("message is too long")
    return {"text": text} | ({"entities": entities} if entities else {})


def _replied(chat: Chat, parameters: Any) -> Posted | None:
    if not parameters:
        return None
    if not isinstance(parameters, dict):
        raise bad("can't parse reply parameters JSON object")
    wanted = cast("Json", parameters)
    if not isinstance(wanted.get("message_id"), int):
        raise bad('can\'t parse reply parameters: Field "message_id" must be of type Number')
    found = chat.find(wanted["message_id"]) if wanted.get("chat_id", chat.id) == chat.id else None
    if found is None and not wanted.get("allow_sending_without_reply"):
        raise bad("message to be replied not found")
    return found


def _keyboard(markup: Any) -> Json:
    """The buttons under a message; another kind of keyboard is checked no further, and belongs to no message."""
    if not markup:
        return {}
    if not isinstance(markup, dict):
        raise bad("object expected as reply markup")
    rows: Any = cast("Json", markup).get("inline_keyboard")
    if rows is None:
        return {}
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in cast("list[Any]", rows)):
        raise bad('can\'t parse inline keyboard: field "inline_keyboard" must be of type Array')
    for button in (button for row in cast("list[list[Any]]", rows) for button in row):
        _check_button(button)
    kept = [row for row in cast("list[Sequence[Json]]", rows) if row]
    return {"reply_markup": {"inline_keyboard": kept}} if kept else {}


def _check_button(button: Any) -> None:
    if not isinstance(button, dict):
        raise bad("can't parse inline keyboard button: InlineKeyboardButton must be an Object")
    fields = cast("Json", button)
    if not str(fields.get("text", "")).strip():
        raise bad("can't parse inline keyboard button: Text buttons are unallowed in the inline keyboard")
    if not set(fields) & {"callback_data", "url", "switch_inline_query", "web_app", "login_url", "copy_text", "pay"}:
        raise bad("can't parse inline keyboard button: Text buttons are unallowed in the inline keyboard")
    if "callback_data" in fields and not 1 <= len(str(fields["callback_data"]).encode()) <= 64:
        raise bad("BUTTON_DATA_INVALID")


def _standing(chat: Chat, user_id: int) -> str:
    """Return the status of a member; the creator is the first member of the group."""
    if chat.kind != "private" and chat.people[0].id == user_id:
        return "creator"
    if any(person.id == user_id for person in chat.admins):
        return "administrator"
    return "member" if any(person.id == user_id for person in chat.people) else "left"


def _audience(params: Params) -> str:
    scope: Json = params.get("scope") or {}
    where = ":".join(str(scope[key]) for key in ("type", "chat_id", "user_id") if key in scope) or "default"
    language = params.get("language_code")
    return f"{where}/{language}" if language else where
