"""Call the Bot API through python-telegram-bot, with plain JSON results and errors that say what to do."""

from __future__ import annotations

import hashlib
import hmac
import warnings
from datetime import timedelta
from typing import Any

import httpx
from telegram.error import BadRequest, ChatMigrated, Conflict, Forbidden, InvalidToken, RetryAfter, TelegramError
from telegram.request import HTTPXRequest
from telegram.warnings import PTBDeprecationWarning

from rapport.domain.errors import Permanent, RapportError, Transient
from telegram import Bot

# With every flood limit the library warns on stderr about a type that is handled here.
warnings.filterwarnings("ignore", message=r"(?s).*`retry_after`", category=PTBDeprecationWarning)

OFFICIAL_URL = "https://api.telegram.org"
POLL_SECONDS = 30
"""Telegram waits this long for an update before it answers that there is none."""
CONNECT_TIMEOUT_SECONDS = 10.0
ANSWER_TIMEOUT_SECONDS = 20.0
CONFLICT_SECONDS = 5.0
"""Pause after another program has polled the same bot."""
MAX_CONNECTIONS = 16

_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)
"""Errors that happen before anything is sent."""


class TokenRefused(Permanent):
    """Telegram does not accept the token."""


class UpdatesConflict(Transient):
    """Another program polls the same bot."""


class NoAnswer(Transient):
    """Telegram gave no answer: the outcome of the request is unknown."""


class Blocked(Permanent):
    """The bot may not write there: it was blocked, removed or muted, or the chat was deleted."""


class Refused(Permanent):
    """Telegram refused the request."""


class BecameSupergroup(Permanent):
    """The group has become a supergroup, which is another chat."""

    def __init__(self, new_chat_id: int) -> None:
        super().__init__("The group has become a supergroup.")
        self.new_chat_id = new_chat_id


class BotApi(Bot):
    """Call the API for one bot. Results are plain JSON; only the fields that are used must be present."""

    def __init__(self, token: str, *, url: str = OFFICIAL_URL) -> None:
        address = url.rstrip("/")
        super().__init__(
            token,
            base_url=f"{address}/bot",
            base_file_url=f"{address}/file/bot",
            request=_make_request(MAX_CONNECTIONS),
            get_updates_request=_make_request(1),
        )

    @property
    def number(self) -> int:
        """Return the bot's id, which its rows are stored with: the number that its token begins with."""
        first = self.token.partition(":")[0]
        if first.isascii() and first.isdigit() and len(first) < 19:
            return int(first)
        return int.from_bytes(hashlib.sha256(self.token.encode()).digest()[:8]) >> 1

    @property
    def webhook_secret(self) -> str:
        """Return the secret that Telegram sends with each webhook call. It is derived from the token, so every process knows it."""
        return hmac.new(self.token.encode(), b"rapport webhook", hashlib.sha256).hexdigest()

    def redact(self, text: str) -> str:
        """Return the text without the secret half of the token."""
        return text.replace(self.token.partition(":")[2] or self.token, "[redacted]")

    async def open(self) -> None:
        """Open the connections."""
        await self._request[0].initialize()
        await self._request[1].initialize()

    async def close_connections(self) -> None:
        await self._request[0].shutdown()
        await self._request[1].shutdown()

    async def call(self, method: str, **parameters: Any) -> Any:
        """Call a method and return its result. Raises one of the errors above, Transient or Permanent."""
        arguments = {name: value for name, value in parameters.items() if value is not None}
        # Only the long poll for updates waits longer than a usual request.
        reading = {"read_timeout": arguments["timeout"] + ANSWER_TIMEOUT_SECONDS} if method == "getUpdates" else {}
        try:
            return await self._post(method, arguments, **reading)
        except (TelegramError, httpx.HTTPError) as error:
            raise self._translate(error) from None  # the cause contains the URL, and so the token
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            raise NoAnswer(f"Telegram gave no answer that can be read: {type(error).__name__}") from None

    def _translate(self, error: Exception) -> RapportError:
        text = self.redact(str(error))
        match error:
            case RetryAfter():
                return Transient(f"Telegram asks to wait: {text}", retry_after=_read_retry_seconds(error))
            case ChatMigrated():
                return BecameSupergroup(error.new_chat_id)
            case Conflict():
                return UpdatesConflict(text, retry_after=CONFLICT_SECONDS)
            case InvalidToken():
                return TokenRefused("Telegram does not accept TELEGRAM_BOT_TOKEN.")
            case Forbidden():
                return Blocked(text)
            case BadRequest():
                return _classify_refusal(text)
            case _:
                return _classify_failure(error, text)


def _classify_failure(error: Exception, text: str) -> RapportError:
    """Return Transient only if nothing was sent: a server that answers 500 or 502 may have done the work."""
    if isinstance(error.__cause__ or error, _NEVER_SENT):
        return Transient(f"Telegram can't be reached: {text}")
    return NoAnswer(f"Telegram gave no answer: {text}", retry_after=2)


def _read_retry_seconds(error: RetryAfter) -> float:
    wait = error.retry_after
    return wait.total_seconds() if isinstance(wait, timedelta) else float(wait)


def _make_request(size: int) -> HTTPXRequest:
    return HTTPXRequest(
        connection_pool_size=size,
        connect_timeout=CONNECT_TIMEOUT_SECONDS,
        read_timeout=ANSWER_TIMEOUT_SECONDS,
        write_timeout=ANSWER_TIMEOUT_SECONDS,
        pool_timeout=ANSWER_TIMEOUT_SECONDS,
    )


_UNREACHABLE_PHRASES = (
    "chat not found",
    "user not found",
    "group chat was deactivated",
    "chat was deleted",
    "user is deactivated",
    "have no rights to send",
    "not enough rights to send",
    "chat_write_forbidden",
    "need administrator rights",
    "peer_id_invalid",
)


def _classify_refusal(text: str) -> Permanent:
    return Blocked(text) if any(word in text.lower() for word in _UNREACHABLE_PHRASES) else Refused(text)
