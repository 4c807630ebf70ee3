"""Read the archive of an office document safely: nothing is unpacked beyond its declared size and our limit."""

from __future__ import annotations

import zipfile
from io import BytesIO
from xml.etree.ElementTree import XMLParser

from rapport.retrieval.files.read_errors import ReadFault, UnreadableFile

MAX_UNPACKED_BYTES = 100_000_000
MAX_RATIO = 200
MAX_MEMBERS = 10_000
_RATIO_CHECKED_FROM_BYTES = 10_000_000
"""Below this size a high compression ratio is no sign of an attack: repetitive text compresses well."""

_PIECE_BYTES = 65_536
_ENCRYPTED = 0x1
_COMPRESSION_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class XmlHandler:
    """Receives the elements of one part of the document while it is parsed; no tree is built."""

    def start(self, tag: str, attributes: dict[str, str], /) -> None:
        """Handle the start of an element."""

    def end(self, tag: str, /) -> None:
        """Handle the end of an element."""

    def data(self, text: str, /) -> None:
        """Text between elements."""

    def doctype(self, name: str, public: str | None, system: str | None, /) -> None:
        """Refuse a document type: office documents have none, and it can define entities that expand without limit."""
        raise UnreadableFile(ReadFault.DAMAGED)

    def close(self) -> None:
        """Handle the end of the part."""


class OfficeZip:
    """The members of an office document; raises UnreadableFile for one with a wrong or too large size."""

    def __init__(self, data: bytes) -> None:
        self._zip = zipfile.ZipFile(BytesIO(data))
        members = self._zip.infolist()
        unpacked = sum(member.file_size for member in members)
        packed = sum(member.compress_size for member in members)
        too_dense = unpacked > _RATIO_CHECKED_FROM_BYTES and unpacked > packed * MAX_RATIO
        if len(members) > MAX_MEMBERS or unpacked > MAX_UNPACKED_BYTES or too_dense:
            raise UnreadableFile(ReadFault.BOMB)
        if any(member.flag_bits & _ENCRYPTED for member in members):
            raise UnreadableFile(ReadFault.PASSWORD)

    def feed(self, name: str, target: XmlHandler) -> bool:
        """Parse a member into `target`; return False if there is no such member."""
        try:
            member = self._zip.getinfo(name)
        except KeyError:
            return False
        if member.compress_type not in _COMPRESSION_METHODS:
            raise UnreadableFile(ReadFault.DAMAGED)
        parser = XMLParser(target=target)  # noqa: S314 - `Target.doctype` refuses what could define entities
        with self._zip.open(member) as stream:
            # In pieces: a single read would unpack everything, whatever size was declared. In pieces it stops at the
            # declared size and finds the wrong checksum.
            while piece := stream.read(_PIECE_BYTES):
                parser.feed(piece)
        parser.close()
        return True


def strip_namespace(tag: str) -> str:
    """Return a tag or an attribute without its namespace."""
    return tag.rpartition("}")[2]
