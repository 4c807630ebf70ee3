"""The settings: `app.py` and the command line read them once and pass them on."""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from typing import Annotated, Literal

import platformdirs
from dotenv import load_dotenv
from pydantic import AliasChoices, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from rapport.context.summary_rules import MAX_CHAT_HISTORY
from rapport.domain.agent_profile import ReflectionMode
from rapport.domain.context_selection import LOOKBACK_LIMIT, MAX_RECENT_MESSAGES, SESSION_GAP_MINUTES, Strategy


class Settings(BaseSettings):
    """All settings, from the environment and `.env`; `.env.example` explains each."""

    model_config = SettingsConfigDict(env_prefix="RAPPORT_", extra="ignore", populate_by_name=True)

    host: Annotated[str, Field(validation_alias=AliasChoices("HOST"))] = "127.0.0.1"
    port: Annotated[int, Field(validation_alias=AliasChoices("PORT"), ge=0, le=65535)] = 8000
    log_level: Annotated[str, Field(validation_alias=AliasChoices("LOG_LEVEL"))] = "info"
    log_format: Literal["auto", "json", "console"] = "auto"
    data_dir: Path = Field(default_factory=lambda: platformdirs.user_data_path("rapport"))
    database_url: Annotated[str | None, Field(validation_alias=AliasChoices("DATABASE_URL"))] = None
    database_connections: Annotated[int, Field(ge=2, le=200)] = 10
    model: str = "builtin"
    embeddings: str = "bundled"
    model_timeout: Annotated[float, Field(gt=0)] = 60.0
    turn_deadline: Annotated[float, Field(gt=0)] = 120.0
    max_message_characters: Annotated[int, Field(ge=1)] = 32_000
    max_turns: Annotated[int, Field(ge=1)] = 256
    max_chat_history: Annotated[int, Field(ge=4, le=200)] = MAX_CHAT_HISTORY
    context_strategy: Strategy = "relevant"
    lookback_limit: Annotated[int, Field(ge=1, le=MAX_RECENT_MESSAGES)] = LOOKBACK_LIMIT
    time_threshold: Annotated[float, Field(gt=0, allow_inf_nan=False)] = SESSION_GAP_MINUTES
    autonomy: bool = True
    reflection: ReflectionMode = "off"
    mcp_config: Path | None = None
    approval_minutes: Annotated[float, Field(gt=0, le=10_080, allow_inf_nan=False)] = 60.0
    retention_days: Annotated[int, Field(ge=0, le=36_500)] = 30
    rate_limit: bool = False
    redis_url: Annotated[str | None, Field(validation_alias=AliasChoices("REDIS_URL"), repr=False)] = None
    trusted_proxies: str = ""
    telegram_bot_token: Annotated[
        str | None, Field(validation_alias=AliasChoices("TELEGRAM_BOT_TOKEN"), repr=False)
    ] = None
    telegram_allowed_chats: Annotated[str, Field(validation_alias=AliasChoices("TELEGRAM_ALLOWED_CHATS"))] = ""
    telegram_allowed_users: Annotated[str, Field(validation_alias=AliasChoices("TELEGRAM_ALLOWED_USERS"))] = ""
    telegram_agent: Annotated[str | None, Field(validation_alias=AliasChoices("TELEGRAM_AGENT"))] = None
    telegram_webhook_url: Annotated[str | None, Field(validation_alias=AliasChoices("TELEGRAM_WEBHOOK_URL"))] = None
    telegram_api_url: Annotated[str, Field(validation_alias=AliasChoices("TELEGRAM_API_URL"))] = (
        "https://api.telegram.org"
    )
    failpoint: str | None = None

    @property
    def is_loopback(self) -> bool:
        """Return True if only this machine can reach the address that the server binds to."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return False


def read_settings() -> Settings:
    """Return the settings of this process. Also loads providers' keys from `.env` into the environment for their libraries."""
    load_dotenv(Path(".env"), override=False)
    for name in (
        "DATABASE_URL",
        "REDIS_URL",
        "RAPPORT_FAILPOINT",
        "RAPPORT_MCP_CONFIG",
        "TELEGRAM_BOT_TOKEN",
        "TELEGRAM_AGENT",
        "TELEGRAM_WEBHOOK_URL",
        "TELEGRAM_API_URL",
    ):
        if os.environ.get(name) == "":
            del os.environ[name]
    return Settings()
