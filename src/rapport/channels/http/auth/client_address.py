"""Find a client's address: the peer's, or the one that a trusted proxy reports (ADR 42)."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence

from rapport.domain.errors import Permanent

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

UNKNOWN = "unknown"
"""Stands for the address of a client that has none, such as one on a Unix socket."""

SITE_PREFIX_BITS = 64
"""A client usually controls the whole /64 around its IPv6 address."""

MAPPED_PREFIX_BITS = 96
"""The prefix of an IPv4 address that is written as an IPv6 one."""


_WRITTEN = re.compile(
    r"\[(?P<bracketed>[^\]:]*:[^\]]*)\](?::[0-9]{1,5})?"  # only IPv6 addresses stand in brackets
    r"|(?P<before_port>[^:]+):[0-9]{1,5}"
    r"|(?P<bare>.+)"
)


def parse_trusted_networks(listed: str) -> tuple[Network, ...]:
    """Return the networks of a comma-separated list of addresses and networks. Raises Permanent for any other entry."""
    return tuple(_parse_network(part) for part in map(str.strip, listed.split(",")) if part)


def _parse_network(text: str) -> Network:
    try:
        network = ipaddress.ip_network(text)
    except ValueError as error:
        raise Permanent(
            f"RAPPORT_TRUSTED_PROXIES: {text[:80]!r} is neither an address nor a network (10.0.0.7, 10.0.0.0/8, fd00::/8)."
            f" {_suggest_network(text)}".rstrip()
        ) from error
    if isinstance(network, ipaddress.IPv6Network) and network.prefixlen >= MAPPED_PREFIX_BITS:
        mapped = network.network_address.ipv4_mapped
        if mapped is not None:
            return ipaddress.IPv4Network((mapped, network.prefixlen - MAPPED_PREFIX_BITS))
    return network


def _suggest_network(text: str) -> str:
    """Return a suggestion for an entry such as 10.1.2.3/8, which may mean one machine or a network. Nothing is guessed."""
    try:
        return f"Is {ipaddress.ip_network(text, strict=False)} meant?"
    except ValueError:
        return ""


def find_client_address(peer: str | None, forwarded: Sequence[str], trusted: Iterable[Network]) -> Address | None:
    """Return the client's address; None if it has none.

    It is the peer's unless the peer is a trusted proxy. Then `forwarded` (the values of X-Forwarded-For, in order) is
    read from its end, where that proxy wrote, as long as the writer is trusted. Entries further left are only claims.
    """
    networks = tuple(trusted)
    address = parse_address(peer or "")
    if address is None or not networks:
        return address
    for entry in reversed(",".join(forwarded).split(",")):
        if not any(address in network for network in networks):
            break
        if not entry.strip():
            continue
        before = parse_address(entry)
        if before is None:
            break
        address = before
    return address


def parse_address(text: str) -> Address | None:
    """Parse an address as proxies write it: with a port, in brackets, with a zone, IPv4 as IPv6. None if it is none."""
    match = _WRITTEN.fullmatch(text.strip())
    if match is None:
        return None
    try:
        address = ipaddress.ip_address(match["bracketed"] or match["before_port"] or match["bare"] or "")
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        return address.ipv4_mapped or ipaddress.IPv6Address(int(address))  # without the zone
    return address


def get_rate_limit_key(address: Address | None) -> str:
    """Return the key that counts as one client: an IPv4 address, or the /64 of an IPv6 one."""
    if address is None:
        return UNKNOWN
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.IPv6Network((address, SITE_PREFIX_BITS), strict=False))
    return str(address)
