"""List the channels, and open those that the settings configure."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Protocol

from rapport.channels.base import Channel, ChannelServices, OpenChannel, SettingsT
from rapport.channels.telegram.plugin import TelegramSettings
from rapport.channels.telegram.plugin import open_channel as open_telegram
from rapport.domain.errors import Permanent


class ChannelSettings(TelegramSettings, Protocol):
    """The settings of every channel below."""


CHANNELS: Sequence[OpenChannel[ChannelSettings]] = (open_telegram,)
"""Each function imports its platform's library only when the channel is configured."""


async def open_channels(
    plugins: Sequence[OpenChannel[SettingsT]], settings: SettingsT, services: ChannelServices, stack: AsyncExitStack
) -> dict[str, Channel]:
    """Open the configured channels, by name; `stack` closes them. Raises Permanent where one can't be opened."""
    channels: dict[str, Channel] = {}
    for open_channel in plugins:
        channel = await stack.enter_async_context(open_channel(settings, services))
        if channel is None:
            continue
        if channel.name in channels:
            raise Permanent(f"Two channels are named {channel.name!r}.")
        channels[channel.name] = channel
    return channels
