"""Frame matching, shared by assertions and faults."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final, Literal, Self, get_args

from stompkit.frames import COMMANDS, Frame, Role
from stompkit.testing.frames.words import is_secret, shown_text

__all__ = ["BodyMatch", "Direction", "HeaderMatch", "Match", "match_of_call"]

#: Direction as the broker sees it: from a client to the broker, or from the broker to a client.
Direction = Literal["received", "sent"]
#: The value of a header, a pattern searched in it, or ``None``: the header is absent.
HeaderMatch = str | re.Pattern[str] | None
#: The body, as bytes or as UTF-8 text; a pattern searched in either; ``None``: any.
BodyMatch = bytes | str | re.Pattern[bytes] | re.Pattern[str] | None

_DIRECTIONS: Final = get_args(Direction)
#: The parameters of ``Match.of``.
_PARAMETERS: Final = ("headers", "body", "connection", "direction")
#: Similarity from which a keyword is a misspelt parameter: ``tims``, but not the header priority,
#: which resembles probability.
_LEAST_SIMILARITY: Final = 0.75


@dataclass(frozen=True)
class Match:
    """Conditions on a frame; omitted fields match anything.

    The constructor raises ValueError for an unknown command or direction, for a direction in which
    the command is not sent, and for a connection below 1. It raises TypeError for a value of an
    unsupported type. Such a match would never succeed, and the reason would not show.
    """

    command: str | None = None
    """The command; ``None``: any."""
    headers: Mapping[str, HeaderMatch] = field(default_factory=dict)
    """Condition for each header. For a repeated header the first value counts, as in STOMP 1.2."""
    body: BodyMatch = None
    """Condition for the body."""
    direction: Direction | None = None
    """Direction of the frame; ``None``: either."""
    connection: int | None = None
    """The connection, numbered from 1 in the order of arrival; ``None``: any."""

    def __post_init__(self) -> None:
        """Reject conditions that cannot match."""
        if self.command is not None and self.command not in COMMANDS:
            raise ValueError(f"{self.command!r} is not a command of STOMP: {', '.join(COMMANDS)}")
        if self.direction is not None and self.direction not in _DIRECTIONS:
            raise ValueError(f"direction is {self.direction!r}, not {' or '.join(_DIRECTIONS)}")
        self._check_sender()
        connection = self.connection
        if connection is not None and (type(connection) is not int or connection < 1):
            raise ValueError(f"connection is {connection!r}, not a number from 1")
        for name, wanted in self.headers.items():
            if wanted is None or isinstance(wanted, str):
                continue
            if not (isinstance(wanted, re.Pattern) and isinstance(wanted.pattern, str)):
                raise TypeError(
                    f"header {name!r} is to be matched with {wanted!r}, which is neither text,"
                    " nor a compiled pattern of text, nor None"
                )
        if not isinstance(self.body, bytes | str | re.Pattern | None):
            raise TypeError(
                f"the body is to be matched with {self.body!r}, which is neither octets, nor text,"
                " nor a compiled pattern"
            )

    def _check_sender(self) -> None:
        """Raise ValueError if only the other end sends this command."""
        if self.command is None or self.direction is None:
            return
        is_client = COMMANDS[self.command].sender is Role.CLIENT
        if (self.direction == "received") is not is_client:
            sender, only = ("clients send", "received") if is_client else ("brokers send", "sent")
            raise ValueError(
                f"direction is {self.direction!r} as the broker sees it, but only {sender}"
                f" {self.command}: use {only!r}, or leave the direction out"
            )

    @classmethod
    def of(
        cls,
        command: str | None = None,
        /,
        *,
        headers: Mapping[str, HeaderMatch] | None = None,
        body: BodyMatch = None,
        connection: int | None = None,
        direction: Direction | None = None,
        **more: HeaderMatch,
    ) -> Self:
        """Create a match, with headers as keywords: ``message_id`` stands for ``message-id``.

        ``headers`` takes headers whose names are not valid keywords. Raises the errors of the
        class, and TypeError for a header that is given in both ways.
        """
        named = {name.replace("_", "-"): wanted for name, wanted in more.items()}
        if headers is not None:
            twice = named.keys() & headers.keys()
            if twice:
                raise TypeError(f"header {min(twice)!r} is given twice")
            named = {**headers, **named}
        return cls(command, named, body, direction, connection)

    def __call__(self, direction: Direction, connection: int, frame: Frame) -> bool:
        """Return True if a frame in this direction on this connection matches."""
        return (
            (self.command is None or self.command == frame.command)
            and (self.direction is None or self.direction == direction)
            and (self.connection is None or self.connection == connection)
            and all(
                _header_fits(wanted, frame.headers.get(name))
                for name, wanted in self.headers.items()
            )
            and self._body_fits(frame.body)
        )

    def __str__(self) -> str:
        """Return the conditions in words, on one line; without the passcode."""
        words = [self.command or "any frame"]
        if self.direction is not None:
            words.append(self.direction)
        if self.connection is not None:
            words.append(f"on connection {self.connection}")
        wanted = [
            f"without {name}" if value is None else f"with {name} {_shown(value, name)}"
            for name, value in self.headers.items()
        ]
        if self.body is not None:
            wanted.append(f"with the body {_shown(self.body)}")
        return " ".join(words) + (" " + ", ".join(wanted) if wanted else "")

    def differences(self, direction: Direction, connection: int, frame: Frame) -> list[str]:
        """Return the reasons why a frame does not match, one line each; empty if it matches."""
        lines = []
        if self.command not in (None, frame.command):
            lines.append(f"command: wanted {self.command}, was {frame.command}")
        if self.direction not in (None, direction):
            lines.append(f"direction: wanted {self.direction}, was {direction}")
        if self.connection not in (None, connection):
            lines.append(f"connection: wanted {self.connection}, was {connection}")
        for name, wanted in self.headers.items():
            value = frame.headers.get(name)
            if not _header_fits(wanted, value):
                expected = "none" if wanted is None else _shown(wanted, name)
                actual = "missing" if value is None else _shown(value, name)
                lines.append(f"{name}: wanted {expected}, was {actual}")
        if self.body is not None and not self._body_fits(frame.body):
            lines.append(f"body: wanted {_shown(self.body)}, was {_as_wanted(frame, self.body)}")
        return lines

    def _body_fits(self, body: bytes) -> bool:
        wanted = self.body
        if wanted is None:
            return True
        if isinstance(wanted, str):
            return body == wanted.encode("utf-8", "surrogateescape")
        if isinstance(wanted, bytes):
            return body == wanted
        if isinstance(wanted.pattern, str):
            return re.search(wanted, body.decode("utf-8", "replace")) is not None
        return re.search(wanted, body) is not None


def _header_fits(wanted: HeaderMatch, value: str | None) -> bool:
    """Return True if a header has the wanted value; ``None`` means that the header is absent."""
    if wanted is None or value is None:
        return wanted is value
    return value == wanted if isinstance(wanted, str) else wanted.search(value) is not None


def _shown(wanted: bytes | str | re.Pattern[bytes] | re.Pattern[str], name: str = "") -> str:
    """Quote a wanted or found value, shortened if it is long."""
    if is_secret(name):
        return "***"
    if isinstance(wanted, re.Pattern):
        return f"matching {shown_text(wanted.pattern)}"
    return shown_text(wanted)


def _as_wanted(frame: Frame, wanted: BodyMatch) -> str:
    """Quote a body in the same form as the wanted one, so that the two can be compared."""
    pattern = wanted.pattern if isinstance(wanted, re.Pattern) else wanted
    if isinstance(pattern, str):
        return shown_text(frame.body.decode("utf-8", "backslashreplace"))
    return shown_text(frame.body)


def match_of_call(
    command: str | None, keywords: Mapping[str, Any], parameters: Collection[str] = ()
) -> Match:
    """Return ``Match.of`` the keywords of a call that also has other parameters.

    A keyword that is no parameter is a header. If its value cannot be one, the error suggests the
    parameter that it resembles.
    """
    try:
        return Match.of(command, **keywords)
    except TypeError as error:
        known = (*_PARAMETERS, *parameters)
        for name, value in keywords.items():
            if name not in _PARAMETERS and not isinstance(value, str | re.Pattern | None):
                meant = get_close_matches(name, known, 1, _LEAST_SIMILARITY)
                if meant:
                    raise TypeError(f"{error}; did you mean {meant[0]}?") from None
        raise
