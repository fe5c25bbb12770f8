"""HTTP connections, and their limits."""

from __future__ import annotations

from typing import Final

from twisted.internet.interfaces import IReactorTime
from twisted.web.resource import IResource

from stompkit._common.twisted.http_site import LimitedSite
from stompkit.server.admin.errors import AdminError
from stompkit.server.admin.guard import HEADERS
from stompkit.server.settings.admin import AdminSettings

__all__ = ["AdminSite"]

_TOO_LARGE: Final = AdminError(413, "too-large", "the body is longer than max_body_bytes").body
_REFUSAL: Final = b"".join(
    (
        b"HTTP/1.1 413 Content Too Large\r\nconnection: close\r\n",
        b"content-type: application/json\r\n",
        b"content-length: %d\r\n" % len(_TOO_LARGE),
        *(f"{name}: {value}\r\n".encode("ascii") for name, value in HEADERS.items()),
        b"\r\n",
        _TOO_LARGE,
    )
)


class AdminSite(LimitedSite):
    """Creates the connections, up to a maximum number."""

    def __init__(self, resource: IResource, settings: AdminSettings, clock: IReactorTime) -> None:
        """Serve one resource, whatever the path."""
        super().__init__(
            resource,
            clock,
            refusal=_REFUSAL,
            max_body_bytes=settings.max_body_bytes,
            max_connections=settings.max_connections,
            timeout_s=settings.timeout_s,
        )
