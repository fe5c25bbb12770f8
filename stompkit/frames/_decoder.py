"""Decode a byte stream, split at any point, into frames."""

from __future__ import annotations

from typing import Final, final

from stompkit.frames._checks import BODYLESS, Checks, check_nul, no_blank_line
from stompkit.frames._errors import RemoteProtocolError, refusal
from stompkit.frames._frame import Frame
from stompkit.frames._grammar import Limits, Tolerance, Version
from stompkit.frames._head import receipt_in
from stompkit.frames._head_template import HeadTemplate
from stompkit.frames._known_heads import KnownHeads

__all__ = ["FrameDecoder"]

_NUL: Final = 0
_LF: Final = 10
_CR: Final = 13
#: Minimum size in bytes of a chunk of a body that is kept as it is. Smaller ones are combined, as
#: each object takes some dozens of bytes.
_LARGE_CHUNK: Final = 4096


@final
class FrameDecoder:
    """Decodes a byte stream into frames; any chunking gives the same frames.

    With ``version=None`` the decoder is in the *handshake*: it reads CONNECT or CONNECTED, whose
    line ends and escapes do not depend on the version. It then returns one frame at a time, so that
    :meth:`negotiated` can be called before the bytes after it are read.

    ``limits`` defaults to :data:`BEFORE_LOGIN` in the handshake and :data:`AFTER_LOGIN` later.
    ``tolerance`` names the accepted departures from the specification.

    Decoding time is linear in the number of bytes fed, whatever their chunking. The memory held is
    bounded by ``limits.max_frame_bytes`` plus the last chunk fed.
    """

    __slots__ = (
        "_body_start",
        "_checks",
        "_error",
        "_frame",
        "_heads",
        "_line_start",
        "_lines",
        "_more",
        "_more_bytes",
        "_need",
        "_pending",
        "_receipt",
        "_searched",
        "eols",
    )

    def __init__(
        self,
        version: Version | None = None,
        *,
        limits: Limits | None = None,
        tolerance: Tolerance = Tolerance.NONE,
    ) -> None:
        """Start at the beginning of a frame."""
        self._error: RemoteProtocolError | None = None
        self._pending = bytearray()
        #: Chunks after the pending bytes, once the length of the frame is known, and their size.
        self._more: list[bytes | bytearray] = []
        self._more_bytes = 0
        #: Line ends seen between frames so far: heart-beats, mostly.
        self.eols = 0
        self._checks = Checks(version, limits, tolerance)
        self._heads = KnownHeads(self._checks)
        self._forget_progress()

    def _forget_pending(self) -> None:
        """Release the pending bytes, and reset the progress."""
        self._pending.clear()
        self._more.clear()
        self._more_bytes = 0
        self._forget_progress()

    def _forget_progress(self) -> None:
        """Reset the progress to the first pending byte."""
        self._searched = 0  # bytes already searched for the next delimiter
        self._lines = 0  # line ends among them, while the head is incomplete
        self._line_start = 0  # start of the incomplete line
        self._body_start = 0  # start of the body; 0 while the head is incomplete
        self._need = 0  # bytes up to and including the final NUL; 0 while unknown
        self._frame: Frame | None = None  # the frame of the complete head, without its body
        self._receipt: str | None = None  # the receipt header of the complete head

    @property
    def version(self) -> Version | None:
        """The version whose rules apply; ``None`` during the handshake."""
        return self._checks.version

    @property
    def pending_bytes(self) -> int:
        """Number of bytes held back because their frame is incomplete."""
        return len(self._pending) + self._more_bytes

    @property
    def missing_bytes(self) -> int:
        """Number of bytes that complete the pending frame; 0 if there is none, or it is unknown."""
        return self._need - self.pending_bytes if self._need else 0

    def negotiated(self, version: Version, limits: Limits | None = None) -> None:
        """End the handshake; later bytes are read by the rules of ``version``."""
        self._checks = Checks(version, limits, self._checks.tolerance)
        self._heads = KnownHeads(self._checks)
        self._forget_progress()

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames completed by *data*.

        Bytes that the grammar does not allow raise :class:`RemoteProtocolError`. Frames that were
        complete before them are returned first, and the next call raises the error. Therefore call
        again with ``b""`` until the list is empty. After an error every call raises it again.
        """
        if self._error is not None:
            raise self._error
        frames: list[Frame] = []
        try:
            if self._pending:
                if not (self._collect(data) if self._need else self._append(data)):
                    return frames
                frame = self._frame
                data = self._finish(frame, frames) if frame else bytes(self._pending)
                self._forget_pending()
            used = 0 if frames and self._checks.version is None else self._decode(data, frames)
            if used < len(data):
                self._pending += memoryview(data)[used:]
                if self._checks.version is not None or not frames:
                    self._ready()
        except RemoteProtocolError as error:
            self._error = error
            self._forget_pending()
            if not frames:
                raise
        return frames

    def eof(self) -> None:
        """Signal the end of the stream; raises :class:`RemoteProtocolError` inside a frame."""
        if self._error is not None:
            raise self._error
        begun = len(self._pending.lstrip(b"\r\n")) + self._more_bytes
        if begun:
            self._error = refusal(
                f"the connection ended within a frame, {begun} octets into it", "truncated"
            )
            raise self._error

    # The fast path: frames that are complete within one chunk.

    def _decode(self, data: bytes, frames: list[Frame]) -> int:
        """Append the complete frames in ``data``, and return the number of bytes used."""
        checks = self._checks
        heads, version = self._heads, checks.version
        max_body, max_frame = checks.max_body, checks.max_frame
        has_cr = checks.crlf and data.find(b"\r") >= 0
        find = data.find
        size = len(data)
        start = 0
        while start < size:
            octet = data[start]
            if octet == _LF:
                self.eols += 1
                start += 1
                continue
            if octet == _CR or octet == _NUL:
                skipped = self._skip(data, start)
                if not skipped:
                    return start
                start += skipped
                continue
            like = heads.templates.get(octet)
            if like is not None:
                end = self._take_alike(data, start, like, frames)
                if end:
                    start = end
                    continue
            nul = find(b"\0", start)
            if nul < 0:
                return start
            gap = find(b"\n\n", start, nul)
            body_start = gap + 2
            if has_cr:
                gap, body_start = _earlier_gap(data, start, nul, gap)
            if gap < 0:
                gap, body_start = checks.gap_missing(data, start, nul)
            head = data[start:gap]
            frame = heads.read(head)
            end = nul
            length = -1
            declared = frame.get("content-length")
            if declared is not None:
                length = nul - body_start
                if declared != str(length) and not checks.ignores_length(frame):
                    length = checks.declared(frame)
                end = body_start + length
                if end != nul:
                    if body_start == gap + 1:
                        raise no_blank_line(head)
                    if end - start > max_frame:
                        raise checks.too_large(frame.get("receipt"))
                    if end >= size:
                        return start
                    check_nul(data[end], frame.get("receipt"))
            if end - body_start > max_body or end - start > max_frame:
                raise checks.too_large(frame.get("receipt"))
            frame.body = data[body_start:end]
            if end > body_start and frame.command in BODYLESS:
                frame.body = checks.dropped_body(frame)
            if version is not None and body_start == gap + 2 and not frame.repeated:
                heads.note(frame, length, version)
            frames.append(frame)
            start = end + 1
            if version is None:
                break
        return start

    def _take_alike(self, data: bytes, start: int, like: HeadTemplate, frames: list[Frame]) -> int:
        """Append the frame at ``start`` if its head matches a template; return its end, or 0.

        Anything unusual is left to :meth:`_decode`.
        """
        checks = self._checks
        body_start = like.body_start(data, start)
        if not body_start or body_start - start > checks.small_head:
            return 0
        end = body_start + like.length if like.length > 0 else body_start
        if end >= len(data):
            return 0
        if data[end] != _NUL:
            end = -1 if like.length >= 0 else data.find(b"\0", body_start)
            if end < 0:
                return 0
        if end - body_start > checks.max_body or end - start > checks.max_frame:
            return 0
        if end > body_start and like.command in BODYLESS:
            return 0
        head, headers = like.head, like.headers.copy()
        if like.varies:
            head = data[start : body_start - 2]
            headers[like.varies] = like.value
        frame = Frame(
            like.command, headers, data[body_start:end], (), head, like.head, like.is_plain
        )
        frames.append(frame)
        like.misses = 0
        return end + 1

    def _skip(self, data: bytes, start: int) -> int:
        """Return the number of bytes to skip at ``start``, where no frame begins.

        Return 0 if more bytes are needed to decide.
        """
        if data[start] == _NUL:
            if not self._checks.tolerance & Tolerance.EXTRA_NUL:
                raise refusal("a NUL octet stands between frames", "bad-frame-start")
            return 1
        if start + 1 == len(data) and self._checks.crlf:
            return 0
        if not self._checks.crlf or data[start + 1] != _LF:
            raise refusal("a carriage return stands between frames", "bad-frame-start")
        self.eols += 1
        return 2

    # The slow path: the one incomplete frame. It never scans bytes twice, and it enforces the
    # limits before the frame is complete.

    def _ready(self) -> bool:
        """Return True if ``_decode`` can make progress with the pending bytes."""
        if self._need or self._body_start:
            return self._find_end()
        if self._pending[0] in (_LF, _CR, _NUL):
            return self._pending != b"\r"
        return self._find_body() and self._find_end()

    def _find_body(self) -> bool:
        """Search for the blank line; return False while it has not arrived."""
        pending, searched, checks = self._pending, self._searched, self._checks
        nul = pending.find(b"\0", searched)
        limit = nul if nul >= 0 else len(pending)
        searched = max(searched - 2, 0)  # a blank line may have begun there
        gap = pending.find(b"\n\n", searched, limit)
        body_start = gap + 2
        if checks.crlf:
            gap, body_start = _earlier_gap(pending, searched, limit, gap)
        if gap < 0 and nul >= 0:
            self._need = nul + 1  # enough for _decode to report the error
            return True
        if gap < 0:
            self._check_partial_head()
            return False
        head = bytes(pending[:gap])
        frame = self._frame = self._heads.read(head)
        self._body_start = self._searched = body_start
        self._receipt = frame.get("receipt")
        if frame.get("content-length") is not None and not checks.ignores_length(frame):
            end = body_start + checks.declared(frame)
            if end > checks.limits.max_frame_bytes:
                raise checks.too_large(self._receipt)
            self._need = end + 1
        return True

    def _check_partial_head(self) -> None:
        """Enforce the limits on a head that is still arriving."""
        pending, checks = self._pending, self._checks
        limits = checks.limits
        broken = None
        most = limits.max_header_line_bytes if self._lines else checks.small_line
        more = pending.count(b"\n", self._searched)
        if more:
            start, end = self._line_start, pending.rfind(b"\n", self._searched)
            if end - start > most or self._lines + more > limits.max_headers + 1:
                broken = checks.broken_limit(pending[start:end].split(b"\n"), self._lines)
            self._lines += more
            self._line_start = end + 1
            most = limits.max_header_line_bytes
        self._searched = len(pending)
        if broken is None and len(pending) - self._line_start > most:
            broken = checks.broken_limit([pending[self._line_start :]], self._lines)
        if broken is not None:
            raise refusal(*broken, receipt=receipt_in(pending[: self._line_start]))
        if len(pending) > limits.max_frame_bytes:
            raise checks.too_large(receipt_in(pending[: self._line_start]))

    def _find_end(self) -> bool:
        """Search for the NUL that ends the frame whose head is complete."""
        pending = self._pending
        if self._need:
            if len(pending) < self._need:
                return False
            check_nul(pending[self._need - 1], self._receipt)
            return True
        nul = pending.find(b"\0", self._searched)
        self._searched = len(pending)
        end = nul if nul >= 0 else len(pending)
        limits = self._checks.limits
        if end - self._body_start > limits.max_body_bytes or end > limits.max_frame_bytes:
            raise self._checks.too_large(self._receipt)
        self._need = nul + 1
        return nul >= 0

    def _append(self, data: bytes) -> bool:
        """Append a chunk to the pending bytes; return True if ``_decode`` can make progress."""
        self._pending += data
        return self._ready()

    def _collect(self, data: bytes) -> bool:
        """Keep a chunk of the frame of known length; return True if the frame is complete.

        The chunk is not copied, so that each byte of a large body is copied only once.
        """
        more = self._more
        missing = self._need - len(self._pending) - self._more_bytes
        if len(data) >= missing:
            check_nul(data[missing - 1], self._receipt)
        last = more[-1] if more else None
        if len(data) >= _LARGE_CHUNK:
            more.append(data)
        elif isinstance(last, bytearray):
            last += data
        else:
            more.append(bytearray(data))
        self._more_bytes += len(data)
        return len(data) >= missing

    def _finish(self, frame: Frame, frames: list[Frame]) -> bytes:
        """Append the completed frame, and return the bytes after it."""
        more = self._more
        if more:
            last = more.pop()
            end = len(last) - (len(self._pending) + self._more_bytes - self._need)
            with memoryview(self._pending) as pending, memoryview(last) as view:
                frame.body = b"".join([pending[self._body_start :], *more, view[: end - 1]])
                rest = bytes(view[end:])
        else:
            with memoryview(self._pending) as pending:
                frame.body = bytes(pending[self._body_start : self._need - 1])
                rest = bytes(pending[self._need :])
        if frame.body and frame.command in BODYLESS:
            frame.body = self._checks.dropped_body(frame)
        frames.append(frame)
        return rest


def _earlier_gap(data: bytes | bytearray, start: int, end: int, gap: int) -> tuple[int, int]:
    """Find the first blank line, given the first one without a carriage return (or -1)."""
    other = data.find(b"\n\r\n", start, end if gap < 0 else gap + 1)
    if other >= 0:
        return other, other + 3
    return gap, gap + 2
