"""A spool that a server has, as storage of a reader."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar
from zlib import crc32

import msgspec

from stompkit._common.addresses import host_port
from stompkit._common.certificates import distrust
from stompkit._common.files import reason_of
from stompkit._common.retry import Backoff
from stompkit.spool._epochs import Epoch
from stompkit.spool._errors import OtherSpoolError, SpoolError, SpoolUnavailableError
from stompkit.spool._files import Segment
from stompkit.spool._identity import Identity
from stompkit.spool._storage import Listing, OpenFile
from stompkit.spool.address import ServerAccess, parse_url
from stompkit.spool.readers import Reader
from stompkit.spool.serving import wire

__all__ = ["ServedStorage"]

#: Time in seconds for a connection, and without any octet of an answer.
_TIMEOUT_S: Final = 30.0
#: Back-off in seconds between attempts: initial and maximum.
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0
#: Maximum size in bytes of one range: a longer one is read in parts, which are retried alone.
_RANGE: Final = 8 << 20
#: Maximum size in bytes of other answers.
_MOST_ANSWER: Final = 64 << 20
_MOST_OFFSET: Final = 10**18
_T = TypeVar("_T", bound=msgspec.Struct)


class _MissingPathError(SpoolError):
    """The server is of an earlier version, and does not know the request."""


class _TemporaryError(Exception):
    """An attempt has failed, and another one may succeed."""


class _Answer(NamedTuple):
    headers: Mapping[str, str]
    body: bytes


class ServedStorage:
    """A spool read from a server, by one request at a time.

    An attempt that fails because of the network or the server is repeated until the patience of the
    access ends. Then a request raises :class:`~stompkit.spool.SpoolUnavailableError`.
    """

    is_local = False

    def __init__(self, url: str, access: ServerAccess, expect_id: str = "") -> None:
        """Connect with the first request; raises :class:`~stompkit.spool.SpoolError` for the URL.

        With ``expect_id``, a different spool raises :class:`~stompkit.spool.OtherSpoolError`.
        """
        try:
            self._url = parse_url(url)
        except ValueError as error:
            raise SpoolError(str(error)) from None
        self.place = str(self._url)
        self._access = access
        self._id = expect_id
        self._context = _context(access) if self._url.is_tls else None
        self._connection: HTTPConnection | None = None
        #: Arrow reads files in several threads.
        self._lock = threading.Lock()

    def __del__(self) -> None:
        connection = getattr(self, "_connection", None)
        if connection is not None:
            connection.close()

    def identity(self, expect_id: str) -> Identity:
        """Return the identity."""
        found = self._spool()
        self._id = self._id or found.id
        return Identity(found.id, found.partitions)

    def head(self) -> tuple[int, ...]:
        """Return the ordinal after the last message of each partition."""
        return self._spool().head

    def epochs(self) -> list[Epoch]:
        """Return the epochs of the spool, oldest first; none if the server does not know them."""
        try:
            found = self._get("/v1/epochs", wire.Epochs)
        except _MissingPathError:
            return []
        return [Epoch(*each) for each in found.epochs]

    def listing(self, partition: int) -> Listing:
        """Return all segments of a partition."""
        found = self._get(f"/v1/partitions/{partition}/segments", wire.Segments)
        unknown = [form for _, form in found.segments if form not in wire.FORMS]
        if unknown:
            raise SpoolError(
                f"{self.place} has segments in the format {unknown[0]!a}, which this version of"
                " stompkit does not know: upgrade it"
            )
        folder = Path(host_port(self._url.host, self._url.port))
        listed = [wire.segment_at(folder, partition, *each) for each in found.segments]
        first = listed[0].first if listed else 0
        return Listing(listed, first if found.floor is None else min(first, found.floor))

    def opened(self, segment: Segment) -> OpenFile:
        """Return a segment to read; raises FileNotFoundError if it was removed or sealed."""
        file = _ServedFile(self, _path_of(segment))
        file.size()
        return file

    def index(self, segment: Segment, offset: int) -> bytes:
        """Return the index file from an offset on."""
        return self.octets(_path_of(segment) + wire.INDEX, offset, _MOST_OFFSET).body

    def readers(self) -> dict[str, Reader]:
        """Return the registered readers."""
        found = self._get("/v1/readers", wire.Readers).readers
        return {name: Reader(each.p, each.updated) for name, each in found.items()}

    def register(self, name: str, positions: Sequence[int]) -> Reader:
        """Register a reader; a registered one keeps its positions."""
        return self._report(name, wire.Position(tuple(positions), is_first=True))

    def progress(self, name: str, positions: Sequence[int]) -> Reader:
        """Record the progress of a reader."""
        return self._report(name, wire.Position(tuple(positions)))

    def octets(self, path: str, start: int, end: int) -> _Answer:
        """Return a range of a file; less if the file is shorter."""
        return self._patiently("GET", f"{path}?start={start}&end={end}")

    def _spool(self) -> wire.Spool:
        return self._get("/v1/spool", wire.Spool)

    def _report(self, name: str, position: wire.Position) -> Reader:
        path = f"/v1/readers/{name}"
        if not isinstance(wire.parse_path(path), wire.ReaderRequest):
            raise ValueError(f"{name[:100]!r} is no name of a reader")
        answer = self._patiently("POST", path, wire.encoded(position))
        found = self._decoded(answer, wire.Registered)
        return Reader(found.p, found.updated)

    def _get(self, path: str, kind: type[_T]) -> _T:
        return self._decoded(self._patiently("GET", path), kind)

    def _decoded(self, answer: _Answer, kind: type[_T]) -> _T:
        try:
            return msgspec.json.decode(answer.body, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise self._no_server() from None

    def _patiently(self, method: str, path: str, body: bytes | None = None) -> _Answer:
        """Return an answer, retrying until the patience ends."""
        deadline = time.monotonic() + self._access.patience_s
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        with self._lock:
            while True:
                # The server closes idle connections; this is no failure.
                is_reused = self._connection is not None
                try:
                    return self._attempt(method, path, body)
                except _TemporaryError as error:
                    self.close()
                    if is_reused:
                        continue
                    pause = backoff.fail()
                    if time.monotonic() + pause > deadline:
                        raise SpoolUnavailableError(
                            f"the machine {socket.gethostname()} cannot read the spool of the"
                            f" server {self.place}: {error}. Start the server there, with"
                            " `stompkit spool serve` or `stompkit spool run --serve`, and check"
                            " that this machine can reach it"
                        ) from None
                except BaseException:
                    self.close()
                    raise
                time.sleep(pause)

    def close(self) -> None:
        """Close the connection; the next request opens another one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _attempt(self, method: str, path: str, body: bytes | None) -> _Answer:
        try:
            if self._connection is None:
                self._connection = self._connected()
            headers = {"authorization": f"Bearer {self._access.token}"}
            self._connection.request(method, path, body, headers)
            response = self._connection.getresponse()
            octets = self._body(response)
        except ssl.SSLCertVerificationError as error:
            reason = distrust(error, "with the option spoolCa")
            raise SpoolError(f"cannot connect to the server {self.place}: {reason}") from None
        except ssl.SSLError as error:
            raise _TemporaryError(f"{reason_of(error)}; is it http:// instead?") from None
        except (OSError, HTTPException) as error:
            raise _TemporaryError(reason_of(error)) from None
        if response.status == 200:
            headers = {name.lower(): value for name, value in response.headers.items()}
            return _Answer(headers, self._checked(response, octets))
        raise self._refused(response, octets)

    def _connected(self) -> HTTPConnection:
        host, port = self._url.host, self._url.port
        if self._context is None:
            connection = HTTPConnection(host, port, timeout=_TIMEOUT_S)
        else:
            connection = HTTPSConnection(host, port, timeout=_TIMEOUT_S, context=self._context)
        connection.connect()
        sock: Any = connection.sock
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def _body(self, response: HTTPResponse) -> bytes:
        length = response.length
        if length is None or length > _MOST_ANSWER:
            raise self._no_server()
        octets = response.read(length)
        if len(octets) < length:
            raise _TemporaryError("it has ended in the middle of an answer")
        # The connection is only free for the next request once the end has been read.
        response.read()
        return octets

    def _checked(self, response: HTTPResponse, octets: bytes) -> bytes:
        """Return an answer after comparing the identity of the spool, and the checksum."""
        spool = response.headers.get(wire.SPOOL)
        if spool is None:
            raise self._no_server()
        if self._id not in ("", spool):
            raise OtherSpoolError(
                f"{self.place} has the spool {spool} instead of {self._id}: its ordinals are"
                " others. Bring the former one back, or start over with this one"
            )
        crc = response.headers.get(wire.CRC)
        if crc is None:
            # The checksum follows the octets of a segment.
            if len(octets) < wire.TRAILER.size:
                raise self._no_server()
            (number,) = wire.TRAILER.unpack(octets[-wire.TRAILER.size :])
            octets, crc = octets[: -wire.TRAILER.size], f"{number:08x}"
        if crc != f"{crc32(octets):08x}":
            raise _TemporaryError("the checksum of an answer does not match")
        return octets

    def _refused(self, response: HTTPResponse, octets: bytes) -> Exception:
        """Return the error for an answer other than 200."""
        if response.status == 401:
            return SpoolError(
                f"the server {self.place} does not accept the token: set spoolToken to the first"
                " line of its token file"
            )
        try:
            problem = msgspec.json.decode(octets, type=wire.Problem)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            if response.status >= 500:
                # A proxy in front of the server says so while the server is away.
                return _TemporaryError(f"it answers with status {response.status}")
            return self._no_server()
        if problem.code == "no-such-path":
            return _MissingPathError(
                f"the server {self.place} is of an earlier version of stompkit: upgrade it"
            )
        if problem.code == "removed":
            return FileNotFoundError(problem.message)
        if response.status == 503:
            return _TemporaryError(problem.message)
        return SpoolError(f"the server {self.place} has an error: {problem.message}")

    def _no_server(self) -> SpoolError:
        return SpoolError(
            f"{self.place} is not the server of a spool: check the address in the option spool"
        )


class _ServedFile:
    """A segment of a server."""

    def __init__(self, storage: ServedStorage, path: str) -> None:
        self._storage = storage
        self._path = path

    def read_at(self, length: int, offset: int) -> bytes:
        parts = []
        end = offset + length
        while offset < end:
            octets = self._storage.octets(self._path, offset, min(end, offset + _RANGE)).body
            if not octets:
                break
            parts.append(octets)
            offset += len(octets)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def size(self) -> int:
        return int(self._storage.octets(self._path, 0, 0).headers[wire.SIZE])

    def close(self) -> None:
        """Do nothing: the connection is for all files."""


def _path_of(segment: Segment) -> str:
    partition = segment.path.parent.name.removeprefix("p")
    form = segment.path.suffix.removeprefix(".")
    return f"/v1/partitions/{partition}/segments/{segment.first}/{form}"


def _context(access: ServerAccess) -> ssl.SSLContext:
    if not access.authorities:
        return ssl.create_default_context()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=access.authorities)
    return context
