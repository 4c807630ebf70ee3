"""A channel is one folder and one line in the registry, as docs/extending/a-channel.md says."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest

from rapport.channels.base import Channel, ChannelServices, OpenChannel
from rapport.domain.channel import OutcomeUnknown
from rapport.domain.errors import Permanent
from rapport.domain.outgoing import Outgoing
from rapport.settings import Settings
from tests.channels import folder_channel
from tests.channels.folder_channel import FolderChannel, open_channel
from tests.support.world import open_world, until

GUIDE = Path(__file__).parents[2] / "docs/extending/a-channel.md"


@dataclass(frozen=True)
class ChatFolder:
    """The settings of the guide's channel."""

    chat_folder: Path | None


def make_plugin(folder: Path | None) -> OpenChannel[Settings]:
    """Return the guide's channel as the registry lists it, with this folder set."""

    def open_with_folder(_settings: Settings, services: ChannelServices) -> AbstractAsyncContextManager[Channel | None]:
        return open_channel(ChatFolder(folder), services)

    return open_with_folder


async def test_a_new_channel_receives_a_message_and_sends_the_reply(database_url: str, tmp_path: Path) -> None:
    async with open_world(database_url, channels=[make_plugin(tmp_path)]) as world:
        world.model.will_say("Basil, and water it on Sundays.")
        write_message(tmp_path, "1.txt", "What grows on a dark balcony?")
        assert await read_replies(tmp_path, 1) == ["Basil, and water it on Sundays."]
        assert not list_files(tmp_path, "in")
        assert world.model.calls[-1][-1].text == "What grows on a dark balcony?"
        await world.drain()
        rows = await world.sql(
            "SELECT m.role, m.platform_id, c.channel FROM messages m"
            " JOIN conversations c ON c.id = m.conversation_id ORDER BY m.seq"
        )
        reply_id = list_files(tmp_path, "out")[0].removesuffix(".txt")
        assert rows == [("user", "1.txt", "folder"), ("assistant", reply_id, "folder")]


async def test_the_same_platform_id_again_is_answered_once(database_url: str, tmp_path: Path) -> None:
    async with open_world(database_url, channels=[make_plugin(tmp_path)]) as world:
        for content in ("Hello", "Hello", "Something else"):  # the last one is refused: the name is taken
            write_message(tmp_path, "1.txt", content)
            await until(lambda: "1.txt" not in list_files(tmp_path, "in"))
        write_message(tmp_path, "2.txt", "Goodbye")
        assert sorted(await read_replies(tmp_path, 2)) == ["re: Goodbye", "re: Hello"]
        assert list_files(tmp_path, "in") == ["1.refused"]
        await world.drain()
        assert len(list_files(tmp_path, "out")) == 2


async def test_a_reply_whose_sending_had_no_answer_is_looked_for(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_world(database_url, channels=[make_plugin(tmp_path)]) as world:
        folder = world.app.channels["folder"].outgoing
        assert isinstance(folder, FolderChannel)
        written: list[str] = []
        write = folder.send

        async def lose_the_first_answer(outgoing: Outgoing) -> AsyncGenerator[str]:
            async for part in write(outgoing):
                written.append(part)
                if len(written) == 1:
                    raise OutcomeUnknown("no answer")
                yield part

        monkeypatch.setattr(folder, "send", lose_the_first_answer)
        write_message(tmp_path, "1.txt", "Hello")
        await read_replies(tmp_path, 1)
        await world.drain()
        assert len(written) == 1
        assert await world.sql("SELECT state FROM outbox") == [("sent",)]


async def test_a_channel_without_its_setting_stays_closed(database_url: str) -> None:
    async with open_world(database_url, channels=[make_plugin(None)]) as world:
        assert "folder" not in world.app.channels


async def test_two_channels_of_one_name_are_refused(database_url: str, tmp_path: Path) -> None:
    plugin = make_plugin(tmp_path)
    with pytest.raises(Permanent, match="Two channels are named 'folder'"):
        async with open_world(database_url, channels=[plugin, plugin]):
            pass


def test_the_guide_shows_the_channel_that_runs_here() -> None:
    assert f"```python\n{Path(folder_channel.__file__).read_text()}```" in GUIDE.read_text()


def write_message(folder: Path, name: str, text: str) -> None:
    """Put a whole file into `in/`: the channel never reads half of one."""
    (folder / name).write_text(text)
    (folder / name).rename(folder / "in" / name)


async def read_replies(folder: Path, count: int) -> list[str]:
    """Return the texts of the replies once there are so many."""

    def read_texts() -> list[str]:
        return [text for name in list_files(folder, "out") if (text := (folder / "out" / name).read_text())]

    await until(lambda: len(read_texts()) >= count)
    return read_texts()


def list_files(folder: Path, name: str) -> list[str]:
    """Return the names of the files in `in` or `out`."""
    return sorted(path.name for path in (folder / name).iterdir())
