"""Read the heads of one peer, using what its earlier heads have in common with them."""

from __future__ import annotations

from typing import Final, final

from stompkit.frames._checks import Checks
from stompkit.frames._errors import RemoteProtocolError
from stompkit.frames._frame import Frame
from stompkit.frames._grammar import Version
from stompkit.frames._head import parse_head
from stompkit.frames._head_reader import HeadReader
from stompkit.frames._head_template import HeadTemplate, likeness

__all__ = ["KnownHeads"]

#: After this many heads, shapes are kept. Most connections of consumers send fewer heads, and take
#: less memory.
_FEW: Final = 8


@final
class KnownHeads:
    """Reads heads by one version, and keeps templates and shapes for later ones."""

    __slots__ = ("_checks", "_parsed", "_reader", "templates")

    def __init__(self, checks: Checks) -> None:
        """Start without earlier heads."""
        self._checks = checks
        #: Templates by the first byte of their heads: most peers repeat themselves.
        self.templates: dict[int, HeadTemplate] = {}
        #: Heads that were parsed, up to _FEW.
        self._parsed = 0
        #: The reader of heads with known shapes, after _FEW heads.
        self._reader: HeadReader | None = None

    def read(self, head: bytes) -> Frame:
        """Return a frame without its body; a broken limit is reported before any other error."""
        checks = self._checks
        if len(head) > checks.small_head:
            checks.check_head(head)
        elif self._reader is not None:
            frame = self._reader.read(head)
            if frame is not None:
                return frame
        elif self._parsed < _FEW:
            self._parsed += 1
        elif checks.version == "1.1" or checks.version == "1.2":
            self._reader = HeadReader(checks.version)
        try:
            command, headers, repeated, is_plain = parse_head(
                head, checks.version, checks.tolerance
            )
        except RemoteProtocolError:
            checks.check_head(head)
            raise
        return Frame(command, headers, b"", repeated, head, None, is_plain)

    def note(self, frame: Frame, length: int, version: Version) -> None:
        """Make a head without repeated headers a template for later ones, if it is simple.

        ``length`` is the declared length of the body, or -1.
        """
        head = frame.head
        assert head is not None
        if len(head) > self._checks.small_head:
            return
        old = self.templates.get(head[0])
        if old is not None and not old.is_to_be_replaced():
            return
        like = likeness(frame, head, length, version)
        if like is not None:
            like.misses = 0 if old is None else old.misses
            self.templates[head[0]] = like
            frame.model = head
