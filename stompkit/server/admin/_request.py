"""The used part of Twisted's request class, which has no types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, BinaryIO, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress

__all__ = ["HttpRequest"]


class HttpRequest(Protocol):
    """An HTTP request and its response."""

    method: bytes
    path: bytes
    args: Mapping[bytes, list[bytes]]
    content: BinaryIO

    def getClientAddress(self) -> IAddress: ...
    def isSecure(self) -> bool: ...
    def getHeader(self, name: bytes) -> bytes | None: ...
    def setHeader(self, name: str, value: str) -> None: ...
    def setResponseCode(self, code: int) -> None: ...
    def write(self, data: bytes) -> None: ...
    def finish(self) -> None: ...
    def notifyFinish(self) -> Deferred[None]: ...
    def registerProducer(self, producer: object, streaming: bool) -> None: ...  # noqa: FBT001 (Twisted's)
    def unregisterProducer(self) -> Any: ...
