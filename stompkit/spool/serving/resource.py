"""Answers of the server of a spool to requests."""

# mypy: disable-error-code="no-untyped-call"
# Most of Twisted's HTTP code has no types.

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NoReturn
from zlib import crc32

import msgspec
from twisted.internet.interfaces import IPushProducer, IReactorTime
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request
from zope.interface import implementer

from stompkit._common.files import describe
from stompkit.spool._errors import SpoolError
from stompkit.spool._storage import FolderStorage, OpenFile
from stompkit.spool.serving import wire
from stompkit.spool.serving.tokens import Tokens

__all__ = ["CHUNK", "STALL_S", "Front"]

_log: Final = logging.getLogger(__name__)
#: Size in bytes of what is read and written at once: the memory of a connection.
CHUNK: Final = 256 * 1024
#: Time in seconds after which a client that receives nothing is disconnected.
STALL_S: Final = 60.0
#: Maximum number of readers that clients can register.
_MOST_READERS: Final = 1_000
#: Interval in seconds between warnings about wrong tokens.
_WARN_S: Final = 60.0
_JSON: Final = "application/json"


class _RefusedError(Exception):
    """A request that is refused, with its status and the error for the client."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status: Final = status
        self.problem: Final = wire.Problem(code, message)


def _refuse(status: int, code: str, message: str) -> NoReturn:
    raise _RefusedError(status, code, message)


class Front(Resource):
    """The resource for every path."""

    isLeaf = True

    def __init__(self, folder: Path, tokens: Tokens, clock: IReactorTime) -> None:
        """Answer requests with one of the tokens."""
        super().__init__()
        self._folder = folder
        self._storage = FolderStorage(folder)
        self._tokens = tokens
        self._clock = clock
        self._warned_s = float("-inf")

    def render(self, request: Request) -> bytes | int:
        """Answer or refuse a request."""
        request.setHeader("content-type", _JSON)
        request.setHeader("cache-control", "no-store")
        try:
            return self._answer(request)
        except _RefusedError as refused:
            status, problem = refused.status, refused.problem
        except FileNotFoundError:
            status, problem = 410, wire.Problem("removed", "this segment was removed or sealed")
        except SpoolError as error:
            status, problem = 500, wire.Problem("broken", str(error))
        except OSError as error:
            _log.warning("the spool cannot be read for %s: %s", _peer(request), describe(error))
            status, problem = 503, wire.Problem("unreadable", describe(error))
        except Exception:
            _log.exception("a request of %s failed", _peer(request))
            status, problem = 500, wire.Problem("internal", "the log of the server has the reason")
        request.setResponseCode(status)
        return _json(request, problem)

    def _answer(self, request: Request) -> bytes | int:
        if not self._tokens.accept(request.getHeader(b"authorization") or b""):
            self._warn(request)
            request.setHeader("www-authenticate", 'Bearer realm="stompkit"')
            _refuse(401, "unauthorised", "the request needs a header Authorization: Bearer TOKEN")
        asked = wire.parse_path(request.path.decode("ascii", "replace"))
        if asked is None:
            _refuse(404, "no-such-path", "there is nothing at this path")
        method = "POST" if isinstance(asked, wire.ReaderRequest) else "GET"
        if request.method != method.encode():
            request.setHeader("allow", method)
            _refuse(405, "wrong-method", f"it takes {method}")
        identity = self._storage.identity("")
        request.setHeader(wire.SPOOL, identity.id)
        if isinstance(asked, wire.FileRequest):
            self._check(asked.partition, identity.partitions)
            return self._octets(request, asked)
        if isinstance(asked, wire.SegmentsRequest):
            self._check(asked.partition, identity.partitions)
            found, floor = self._storage.listing(asked.partition)
            listed = [(each.first, each.path.suffix.removeprefix(".")) for each in found]
            return _json(request, wire.Segments(listed, floor))
        if isinstance(asked, wire.ReaderRequest):
            return _json(request, self._progress(request, asked.name))
        if asked == "readers":
            readers = {
                name: wire.Registered(each.positions, each.updated_s)
                for name, each in self._storage.readers().items()
            }
            return _json(request, wire.Readers(readers))
        if asked == "epochs":
            return _json(
                request, wire.Epochs([(each.id, each.starts) for each in self._storage.epochs()])
            )
        head = self._storage.head()
        return _json(request, wire.Spool(identity.id, identity.partitions, head))

    def _check(self, partition: int, partitions: int) -> None:
        if partition >= partitions:
            _refuse(400, "bad-partition", f"there are {partitions} partitions, counted from 0")

    def _octets(self, request: Request, asked: wire.FileRequest) -> bytes | int:
        segment = wire.segment_at(self._folder, asked.partition, asked.segment, asked.form)
        start, end = (_number(request, name) for name in ("start", "end"))
        if start > end:
            _refuse(400, "bad-range", "the range ends before it starts")
        request.setHeader("content-type", "application/octet-stream")
        if asked.is_index:
            return _checked(request, self._storage.index(segment, start)[: end - start])
        file = self._storage.opened(segment)
        try:
            size = file.size()
            request.setHeader(wire.SIZE, str(size))
            start, end = min(start, size), min(end, size)
            length = end - start + wire.TRAILER.size
            request.setHeader("content-length", str(length))
            answer = _Octets(request, file, start, end, self._clock)
        except BaseException:
            file.close()
            raise
        answer.begin()
        return NOT_DONE_YET

    def _progress(self, request: Request, name: str) -> wire.Registered:
        body = b"" if request.content is None else request.content.read()
        try:
            position = msgspec.json.decode(body, type=wire.Position)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise _RefusedError(400, "bad-body", f"the body is no position: {error}") from None
        known = self._storage.readers()
        if name not in known and len(known) >= _MOST_READERS:
            _refuse(409, "too-many", f"there are {len(known)} readers: remove those not needed")
        record: Callable[..., Any] = (
            self._storage.register if position.is_first else self._storage.progress
        )
        try:
            reader = record(name, position.p)
        except ValueError as error:
            raise _RefusedError(400, "bad-position", str(error)) from None
        return wire.Registered(reader.positions, reader.updated_s)

    def _warn(self, request: Request) -> None:
        """Log a wrong token, at a limited rate."""
        now = self._clock.seconds()
        if now - self._warned_s >= _WARN_S:
            self._warned_s = now
            _log.warning("refused a request of %s: its token is wrong", _peer(request))


@implementer(IPushProducer)
class _Octets:
    """Octets of a file, read when the client has received the former ones."""

    def __init__(
        self, request: Request, file: OpenFile, start: int, end: int, clock: IReactorTime
    ) -> None:
        self._request = request
        self._file = file
        self._at = start
        self._end = end
        self._crc = 0
        self._clock = clock
        self._is_paused = False
        self._is_over = False
        self._stalled: Any = None

    def begin(self) -> None:
        """Start to write."""
        self._request.notifyFinish().addBoth(lambda _: self._close())
        self._request.registerProducer(self, True)
        if not self._is_over:
            self.resumeProducing()

    def resumeProducing(self) -> None:
        """Write until the client has to catch up."""
        self._is_paused = False
        self._wait()
        while not (self._is_paused or self._is_over):
            if self._at == self._end:
                self._request.write(wire.TRAILER.pack(self._crc))
                self._request.unregisterProducer()
                self._request.finish()
                return
            octets = self._read()
            if not octets:
                # The declared length can no longer be sent: only the end of the connection says so.
                self._request.loseConnection()
                return
            self._at += len(octets)
            self._crc = crc32(octets, self._crc)
            self._request.write(octets)

    def pauseProducing(self) -> None:
        """Stop to write until the client has caught up."""
        self._is_paused = True

    def stopProducing(self) -> None:
        """End, since the client is gone."""
        self._close()

    def _read(self) -> bytes:
        try:
            return self._file.read_at(min(CHUNK, self._end - self._at), self._at)
        except OSError as error:
            _log.warning("the spool cannot be read for %s: %s", _peer(self._request), error)
            return b""

    def _wait(self) -> None:
        if self._stalled is not None and self._stalled.active():
            self._stalled.cancel()
        self._stalled = self._clock.callLater(STALL_S, self._abort)

    def _abort(self) -> None:
        channel: Any = self._request.channel
        if channel is not None:
            channel.forceAbortClient()

    def _close(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._file.close()
        if self._stalled is not None and self._stalled.active():
            self._stalled.cancel()


def _number(request: Request, name: str) -> int:
    values = (request.args or {}).get(name.encode(), [])
    text = values[0].decode("ascii", "replace") if len(values) == 1 else ""
    if not (text.isascii() and text.isdecimal() and len(text) <= 19):
        _refuse(400, "bad-range", f"{name} is one number of octets")
    return int(text)


def _json(request: Request, content: msgspec.Struct) -> bytes:
    return _checked(request, wire.encoded(content))


def _checked(request: Request, octets: bytes) -> bytes:
    request.setHeader(wire.CRC, f"{crc32(octets):08x}")
    return octets


def _peer(request: Request) -> str:
    return str(getattr(request.getClientAddress(), "host", "a client"))
