"""Authenticate the caller: owner and role of the key or session, or the local user on a loopback server without keys."""

from __future__ import annotations

import time
from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection

from rapport.channels.http.auth.client_address import Network, parse_address
from rapport.core.access import Access
from rapport.domain.caller import LOCAL_CALLER, Caller
from rapport.domain.errors import Unauthorized

COOKIE = "rapport_session"
PAGE_HEADER = "X-Rapport"
"""A page of another site can't send this header: the browser sends a preflight request first, which is refused."""
PAGE = "page"

_KEYLESS_CACHE_SECONDS = 2.0
"""After this time the server checks again whether the database has keys."""

_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class Authenticator:
    """Authenticates requests and WebSockets. Its methods are FastAPI dependencies and raise Unauthorized; each costs one lookup."""

    def __init__(self, access: Access, *, loopback: bool, keyless: Keyless | None = None) -> None:
        self._access = access
        self._keyless = keyless or Keyless(access, loopback=loopback)

    async def authenticate(self, connection: HTTPConnection) -> Caller:
        """Return the owner and role of the request's key or session; without keys, the local user as an operator."""
        if await self._keyless.is_open():
            _refuse_foreign_pages(connection)
            return LOCAL_CALLER
        scheme, _, secret = connection.headers.get("authorization", "").partition(" ")
        token = connection.cookies.get(COOKIE)
        if not scheme and token:
            return await self._authenticate_session(connection, token)
        if scheme.lower() != "bearer" or not secret.strip():
            raise Unauthorized("Send a key: `Authorization: Bearer <key>`. `rapport keys create NAME` makes one.")
        caller = await self._access.find_caller_by_key(secret.strip())
        if caller is None:
            raise Unauthorized("This key is not valid, or was revoked.")
        return caller

    async def authenticate_owner(self, connection: HTTPConnection) -> str:
        """Return the caller's owner id, for the routes that are the same for all roles."""
        return (await self.authenticate(connection)).owner_id

    async def authenticate_operator(self, connection: HTTPConnection) -> Caller:
        """Return the caller; raise 403 unless it is an operator."""
        caller = await self.authenticate(connection)
        if not caller.is_operator:
            raise HTTPException(
                403,
                "This is for operators: it needs a key with that role (`rapport keys create NAME --role operator`).",
            )
        return caller

    async def _authenticate_session(self, connection: HTTPConnection, token: str) -> Caller:
        caller = await self._access.find_caller_by_session(token)
        if caller is None:
            raise Unauthorized("You are signed out: sign in with a key.")
        refuse_forged(connection)
        return caller


class Keyless:
    """Checks whether the server has no keys and so accepts requests without one. The result is cached for a moment."""

    def __init__(self, access: Access, *, loopback: bool) -> None:
        self._access = access
        self._loopback = loopback
        self._answer = False
        self._until = 0.0

    def forget(self) -> None:
        """Clear the cached result."""
        self._until = 0.0

    async def is_open(self) -> bool:
        if self._loopback and time.monotonic() >= self._until:
            self._answer = not await self._access.has_keys()
            self._until = time.monotonic() + _KEYLESS_CACHE_SECONDS
        return self._answer


def refuse_forged(connection: HTTPConnection) -> None:
    """Raise 403 for a request that a page of another site made with this browser's cookie (CSRF).

    Reading is harmless: only pages of this site can see the response. A WebSocket can be read by the page that opens it
    and can't carry headers, so its Origin decides, which browsers always send.
    """
    is_socket = connection.scope["type"] == "websocket"
    if not is_socket:
        if connection.scope["method"] in _SAFE_METHODS:
            return
        if connection.headers.get(PAGE_HEADER) != PAGE:
            raise HTTPException(
                403, f"A request that is signed in by a cookie needs the header `{PAGE_HEADER}: {PAGE}`."
            )
    origin = connection.headers.get("origin")
    if origin is None and not is_socket:
        return
    # A proxy may call this server by another name; `Sec-Fetch-Site` is set by the browser and still right.
    if connection.headers.get("sec-fetch-site") != "same-origin" and not _is_own_origin(connection, origin or ""):
        raise HTTPException(403, "A page of another site sent this request.")


def _is_own_origin(connection: HTTPConnection, origin: str) -> bool:
    """Return True if an Origin names this server, including its port."""
    scheme, _, host = origin.lower().partition("://")
    return scheme in {"http", "https"} and bool(host) and host in _list_own_hosts(connection)


def _list_own_hosts(connection: HTTPConnection) -> set[str]:
    """Return the names by which the client addressed this server: the Host, and the one a trusted proxy forwards."""
    hosts = {connection.headers.get("host", "").lower()}
    app = connection.scope.get("app")
    networks: Sequence[Network] = () if app is None else app.state.trusted_proxies
    peer = None if connection.client is None else parse_address(connection.client.host)
    if peer is not None and any(peer in network for network in networks):
        hosts.add(connection.headers.get("x-forwarded-host", "").partition(",")[0].strip().lower())
    return hosts


def _refuse_foreign_pages(connection: HTTPConnection) -> None:
    """Raise Unauthorized for a page of another site that calls a server without keys through its visitor's browser.

    Its requests carry its own name as Origin, or as Host when its name resolves to this machine (DNS rebinding).
    """
    if _parse_host(connection.headers.get("host", "")) not in _LOCAL_NAMES:
        raise Unauthorized(
            "Without keys this server only answers requests to localhost. `rapport keys create NAME` makes a key."
        )
    origin = connection.headers.get("origin")
    if origin is None:  # no browser, or one that only reads
        return
    if _parse_host(origin.partition("://")[2]) not in _LOCAL_NAMES:
        raise Unauthorized("Without keys this server does not answer pages of other sites.")
    only_reads = connection.scope["type"] == "http" and connection.scope["method"] in _SAFE_METHODS
    is_same = connection.headers.get("sec-fetch-site") == "same-origin" or _is_own_origin(connection, origin)
    if not only_reads and not is_same:
        # A server on another port of this machine is another site: its page must not change anything.
        raise Unauthorized(
            "Without keys this server does not answer pages of other sites, including other ports of this machine."
            " `rapport keys create NAME` makes a key for them."
        )


def _parse_host(netloc: str) -> str:
    try:
        return (urlsplit(f"//{netloc}").hostname or "").lower()
    except ValueError:  # not a host at all
        return ""
