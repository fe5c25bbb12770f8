"""What is used of a request of Twisted's, which has no types of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, BinaryIO, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress

__all__ = ["HttpRequest"]


class HttpRequest(Protocol):
    """A request of HTTP, and its answer."""

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
