"""Helpers shared by both replays."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from stompkit.frames import VERSIONS, Frame, Tolerance, Version, encode
from stompkit.testing.frames.events import Event, Octets, SeenFrame
from stompkit.testing.frames.matching import Direction
from stompkit.testing.frames.words import MASK, is_secret, shown_text
from stompkit.testing.transcripts.ids import id_kind
from stompkit.testing.transcripts.transcript import Transcript

__all__ = [
    "ReplayFailedError",
    "check_replayable",
    "differences",
    "version_of",
    "versions_in",
    "wire_octets",
]


class ReplayFailedError(AssertionError):
    """The peer deviated from the transcript; the message contains the differences.

    ``differences`` has one line for each of them.
    """

    def __init__(self, message: str, differences: Iterable[str] = ()) -> None:
        """Store the message and the differences."""
        super().__init__(message)
        self.differences = list(differences)


def check_replayable(transcript: Transcript, theirs: Direction) -> None:
    """Raise ValueError for a transcript that cannot be replayed.

    ``theirs`` is the direction in which the peer sends. Raises LocalProtocolError for a frame of
    this side that STOMP cannot encode.
    """
    versions = versions_in(transcript.events)
    if transcript.forgotten:
        raise ValueError(
            f"the transcript cannot be replayed: {transcript.forgotten} events are missing before"
            " the first one"
        )
    for number, event in enumerate(transcript.events, 1):
        problem = None
        if isinstance(event, SeenFrame) and event.cut_bytes:
            problem = "its body is not complete"
        elif isinstance(event, SeenFrame) and event.direction != theirs:
            wire_octets(event.frame, versions.get(event.connection))
        elif isinstance(event, Octets) and event.direction == theirs:
            problem = "what is no frame cannot be waited for"
        if problem is not None:
            raise ValueError(
                f"the transcript cannot be replayed: {problem} (event {number}: {event})"
            )


def versions_in(events: Iterable[Event]) -> dict[int, Version]:
    """Return the negotiated version of each connection that got CONNECTED."""
    return {
        event.connection: version_of(event.frame)
        for event in events
        if isinstance(event, SeenFrame) and event.command == "CONNECTED"
    }


def version_of(connected: Frame) -> Version:
    """Return the version of a CONNECTED frame: 1.0 if it has no known version."""
    announced = connected.headers.get("version")
    return next((version for version in VERSIONS if version == announced), "1.0")


def differences(wanted: Frame, was: Frame, ignored: Collection[str]) -> list[str]:
    """Return the differences between two frames of the same command, one line for each header.

    Headers in ``ignored`` and masked values are not compared, nor repeated ids.
    """
    lines = []
    for name in {**wanted.headers, **was.headers}:
        old, new = wanted.headers.get(name), was.headers.get(name)
        masked = is_secret(name) or (old == MASK and new is not None)
        if old != new and not masked and name != "content-length" and name not in ignored:
            expected = "none" if old is None else shown_text(old)
            actual = "missing" if new is None else shown_text(new)
            lines.append(f"{name}: wanted {expected}, was {actual}")
    for name in dict.fromkeys(name for frame in (wanted, was) for name, _ in frame.repeated):
        if name in ignored or is_secret(name) or id_kind(wanted.command, name) is not None:
            continue
        olds, news = _repeated(wanted, name), _repeated(was, name)
        if name != "content-length" and not _are_same(olds, news):
            expected, actual = (", ".join(map(shown_text, each)) for each in (olds, news))
            lines.append(f"{name} repeated: wanted {expected or 'none'}, was {actual or 'missing'}")
    if wanted.body != was.body:
        lines.append(f"body: wanted {shown_text(wanted.body)}, was {shown_text(was.body)}")
    return lines


def _repeated(frame: Frame, name: str) -> list[str]:
    """Return the values of a header after the first one."""
    return [value for each, value in frame.repeated if each == name]


def _are_same(olds: list[str], news: list[str]) -> bool:
    """Return True if all values are the same, except for masked ones."""
    return len(olds) == len(news) and all(
        old in (MASK, new) for old, new in zip(olds, news, strict=True)
    )


def wire_octets(frame: Frame, version: Version | None) -> bytes:
    """Encode a frame as recorded, with a content-length only if it has one.

    The length is computed again, since the body may have been masked or replaced. Raises
    LocalProtocolError for a frame that cannot be encoded.
    """
    headers = dict(frame.headers)
    counted = "content-length" in headers
    if counted:
        headers["content-length"] = str(len(frame.body))
    # The end of a body with NUL is unknown without its length.
    inside = counted or b"\0" in frame.body
    told = Frame(frame.command, headers, frame.body if inside else b"", frame.repeated)
    octets = encode(told, version, tolerance=Tolerance.LENIENT)
    return octets if inside else octets[:-1] + frame.body + b"\0"
