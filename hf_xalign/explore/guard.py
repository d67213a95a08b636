"""Filter of the page's server: only requests of the page itself, sent to a name of this server, are answered."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

# What Gradio's page asks for. Its server has more: uploads, files, proxies, monitoring, calls past the queue.
_READ = re.compile(
    r"/(config/?|theme\.css|favicon\.ico|manifest\.json|robots\.txt|(static|assets|svelte)/.*"
    r"|gradio_api/(startup-events|info/?|app_id/?|theme\.css|queue/data|heartbeat/[^/]+))?"
)
_SENT = re.compile(r"/gradio_api/(queue/join|cancel|reset/?)")
_MOST_BYTES = 1_000_000  # of a body: two sentences of 512 words have some kilobytes
_LOCAL = ("127.0.0.1", "localhost", "::1")
_ANY = ("", "0.0.0.0", "::")


class Guard:
    """ASGI application that refuses what the page does not need, before a body is read.

    `Host` must be 127.0.0.1, localhost, [::1] or `host`, with the server's port, and `Origin`, if present, must be one
    of the same addresses. If `host` means all addresses of this machine, the machine's name and the address that
    received the request are allowed too. On a Space, the Hub's proxy selects the server by `Host`, so only `Origin` is
    checked: it must be the Space's host name, or the one in the request to the proxy.

    Args:
        app: ASGI application of the page.
        host: address or name that the server listens on.
    """

    def __init__(self, app: ASGIApp, host: str):
        self._app = app
        host = host.strip("[]").lower()
        self._any = host in _ANY
        self._names = {*_LOCAL, socket.gethostname().lower() if self._any else host}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan" or (refusal := self._refusal(scope)) is None:
            await self._app(scope, receive, send)
        else:
            await PlainTextResponse(refusal[1], status_code=refusal[0])(scope, receive, send)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if "SPACE_HOST" not in os.environ and not self._is_name(scope, headers.get("host", "")):
            return 421, "This server has another name. Open the address that hf-xalign explore printed.\n"
        if (origin := headers.get("origin")) is not None and not self._is_own(scope, headers, origin):
            return 403, "Pages of other addresses may not use this server.\n"
        method = scope.get("method", "")  # none of a web socket
        paths = {"GET": _READ, "HEAD": _READ, "POST": _SENT}.get(method)
        if paths is None or not paths.fullmatch(scope["path"]):
            return 404, "The page has no such address.\n"
        length = headers.get("content-length", "" if method == "POST" else "0")
        if "transfer-encoding" in headers or not length.isdecimal() or int(length) > _MOST_BYTES:
            return 413, f"A request may have {_MOST_BYTES:,} bytes, and must say how many it has.\n"
        return None

    def _is_own(self, scope: Scope, headers: Mapping[str, str], origin: str) -> bool:
        scheme, _, authority = origin.partition("://")
        if space := os.environ.get("SPACE_HOST"):
            addresses = {space, headers.get("host"), headers.get("x-forwarded-host")}
            return scheme == "https" and authority in addresses
        return scheme == "http" and self._is_name(scope, authority)

    def _is_name(self, scope: Scope, authority: str) -> bool:
        try:
            split: Any = urlsplit(f"//{authority}")
            name, port = split.hostname, split.port or 80
        except ValueError:  # a port of letters, half a bracket
            return False
        address, served = scope["server"]
        names = self._names | ({address} if self._any else set())
        return split.netloc == authority and "@" not in authority and name in names and port == served
