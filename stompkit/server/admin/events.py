"""Server-sent events: changes once a second, and frames for observers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct, field
from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer

from stompkit.frames import Frame
from stompkit.server.admin.context import Context
from stompkit.server.admin.errors import refuse
from stompkit.server.admin.request import HttpRequest
from stompkit.server.admin.results import DestinationShape
from stompkit.server.admin.views import destination_shape, overview, text_of
from stompkit.server.domain.destinations import Destination
from stompkit.server.log.observer import masked
from stompkit.server.settings.admin import AdminSettings

__all__ = ["EventsQuery", "FrameShape", "Streams"]

_MOST_HEADERS: Final = 100
_LONGEST_VALUE: Final = 2_000


class EventsQuery(Struct, kw_only=True):
    """The requested events: with ``frames``, also the frames of a peer or destination."""

    frames: bool = False
    peer: Annotated[str, Meta(max_length=256)] | None = None
    destination: Annotated[str, Meta(max_length=4096)] | None = None


class FrameShape(Struct, kw_only=True):
    """A frame: ``direction`` is ``<`` from a client, and ``>`` to a client."""

    time: str
    direction: str
    peer: str
    command: str
    headers: list[tuple[str, str]]
    body_octets: int


class _Dropped(Struct, kw_only=True):
    """Number of frames not sent in the last second."""

    dropped: int


class _Changes(Struct, kw_only=True):
    """Changed destinations, and the hosts and names of removed ones."""

    changed: list[DestinationShape]
    gone: list[tuple[str, str]] = field(default_factory=list)


class Streams:
    """All open event streams."""

    def __init__(self, context: Context, settings: AdminSettings) -> None:
        """Start without streams."""
        self._context = context
        self._most = settings.max_streams
        self._most_frames = settings.max_frames_per_s
        self._streams: dict[_Stream, None] = {}

    def open(self, request: HttpRequest, query: EventsQuery) -> None:
        """Open a stream to a client; raises :class:`Problem` if there are too many."""
        if len(self._streams) >= self._most:
            refuse(429, "too-many-streams", f"at most {self._most} get events at a time")
        request.setHeader("content-type", "text/event-stream; charset=utf-8")
        request.setHeader("x-accel-buffering", "no")
        if request.method == b"HEAD":
            request.write(b"")
            request.finish()
            return
        stream = _Stream(self._context, request, query, self._most_frames)
        request.notifyFinish().addBoth(lambda _: self._ended(stream))
        request.registerProducer(stream, True)
        if not self._streams:
            self._context.statistics.watchers.append(self._notify)
        self._streams[stream] = None
        self._watch()
        stream.notify()

    def _ended(self, stream: _Stream) -> None:
        self._streams.pop(stream, None)
        if not self._streams and self._notify in self._context.statistics.watchers:
            self._context.statistics.watchers.remove(self._notify)
        self._watch()

    def _watch(self) -> None:
        """Enable or disable the frame watch of the broker, as the open streams require."""
        broker = self._context.broker
        wanted = any(each.query.frames for each in self._streams)
        if wanted != (broker.frame_watch is not None):
            broker.watch_frames(self._saw if wanted else None)

    def _saw(self, direction: str, peer: str, frame: Frame) -> None:
        made: FrameShape | None = None
        for stream in self._streams:
            if stream.wants(peer, frame):
                if made is None:
                    made = _frame_shape(direction, peer, frame)
                stream.notify_frame(made)

    def _notify(self) -> None:
        for stream in list(self._streams):
            stream.notify()

    def close(self) -> None:
        """End all streams."""
        for stream in list(self._streams):
            stream.end()


@implementer(IPushProducer)
class _Stream:
    """One event stream; nothing is queued for a client that does not read."""

    def __init__(
        self, context: Context, request: HttpRequest, query: EventsQuery, most_frames: int
    ) -> None:
        self._context = context
        self._request = request
        self.query = query
        self._most_frames = most_frames
        self._is_paused = False
        self._is_over = False
        self._last_id = 0
        #: The state known to the client: destinations, and the serial of the last one sent.
        self._known: dict[Destination, tuple[str, str]] = {}
        self._serial = 0
        self._frames = 0
        self._dropped = 0

    def notify(self) -> None:
        """Send the changes since the last time."""
        if self._is_paused or self._is_over:
            return
        statistics = self._context.statistics
        self._write("overview", overview(self._context))
        changed = []
        known = self._known
        for destination, followed in statistics.followed.items():
            if destination not in known or followed.serial > self._serial:
                known[destination] = destination.host.name, destination.name
                changed.append(destination_shape(self._context, destination))
        gone = [each for each in known if each not in statistics.followed]
        # A new destination may have taken the same name.
        there = {each.key for each in statistics.followed.values()}
        names = [known.pop(each) for each in gone]
        self._serial = statistics.serial
        self._write(
            "destinations",
            _Changes(
                changed=changed,
                gone=[(host, text_of(name)) for host, name in names if (host, name) not in there],
            ),
        )
        if self._dropped:
            self._write("frame", _Dropped(dropped=self._dropped))
        self._frames = self._dropped = 0

    def wants(self, peer: str, frame: Frame) -> bool:
        """Return True if the client wants a frame."""
        query = self.query
        if not query.frames or self._is_over:
            return False
        if query.peer is not None and query.peer not in peer:
            return False
        return query.destination is None or query.destination in frame.headers.get(
            "destination", ""
        )

    def notify_frame(self, frame: FrameShape) -> None:
        """Send a frame, or count it as dropped if there are too many."""
        if self._is_paused or self._frames >= self._most_frames:
            self._dropped += 1
            return
        self._frames += 1
        self._write("frame", frame)

    def _write(self, event: str, data: object) -> None:
        self._last_id += 1
        text = msgspec.json.encode(data)
        self._request.write(
            b"id: %d\nevent: %s\ndata: %s\n\n" % (self._last_id, event.encode(), text)
        )

    def end(self) -> None:
        """End the stream."""
        if not self._is_over:
            self._is_over = True
            self._request.unregisterProducer()
            self._request.finish()

    def pauseProducing(self) -> None:
        """Skip events until the client has read."""
        self._is_paused = True

    def resumeProducing(self) -> None:
        """Resume; the next event contains all changes made meanwhile."""
        self._is_paused = False

    def stopProducing(self) -> None:
        """End the stream, since the client has disconnected."""
        self._is_over = True


def _frame_shape(direction: str, peer: str, frame: Frame) -> FrameShape:
    headers = masked(frame.headers)
    octets = len(frame.body)
    length = frame.headers.get("content-length", "")
    if not octets and length.isascii() and length.isdigit() and len(length) < 16:
        # MESSAGE frames are shown without a body.
        octets = int(length)
    return FrameShape(
        time=datetime.now(UTC).isoformat(timespec="milliseconds"),
        direction=direction,
        peer=text_of(peer),
        command=frame.command,
        headers=[
            (text_of(name)[:_LONGEST_VALUE], text_of(value)[:_LONGEST_VALUE])
            for name, value in list(headers.items())[:_MOST_HEADERS]
        ],
        body_octets=octets,
    )
