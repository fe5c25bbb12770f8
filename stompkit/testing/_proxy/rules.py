"""Rules: what is to happen to what passes, to what of it, and when."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, Literal, NamedTuple, Protocol

from stompkit.frames import COMMANDS, VERSIONS, Frame, Role, encode
from stompkit.testing._frames.events import End
from stompkit.testing._frames.matching import Direction, Match
from stompkit.testing._proxy.checks import check_number, check_whole

__all__ = [
    "Breakable",
    "Ending",
    "Injection",
    "Passage",
    "Rule",
    "is_about_connections",
    "rule_of_connections",
    "rule_of_frames",
]

_RECEIVED: Final = [name for name, row in COMMANDS.items() if row.sender is Role.CLIENT]
#: The keywords that say which of the matches are meant.
_CONDITIONS: Final = ("nth", "every", "times", "probability")

#: How the way on ends: one direction, both ends in order, both cut off, or one of them cut off
#: without the other one's knowledge.
Ending = Literal["eof", "close", "reset", "client gone", "broker gone"]
#: What a rule acts on: frames, ends of line between them, whatever passes, how fast it does, whole
#: connections, or those that want to become one.
About = Literal["frames", "beats", "octets", "rate", "connections", "listening"]


class Injection(NamedTuple):
    """What nobody sent."""

    direction: Direction
    """Which way it goes."""
    what: Frame | bytes
    """A frame, or octets that are put on the wire as they are."""

    def octets(self, version: str) -> bytes:
        """What goes over a connection of a version."""
        if isinstance(self.what, bytes):
            return self.what
        return encode(self.what, next((each for each in VERSIONS if each == version), None))


@dataclass(slots=True, eq=False)
class Passage:
    """What becomes of a piece on its way; rules change it."""

    octets: bytes
    """What goes out; nothing of a frame that is dropped."""
    is_frame: bool = False
    """Whether the piece was a frame."""
    delays: dict[Rule, float] = field(default_factory=dict)
    """How long it takes by each rule, and with it whatever comes later, in seconds."""
    slice_bytes: int = 0
    """How many octets go out at once; 0: all."""
    pause_s: float = 0.0
    """How long the way is free of octets between two slices, in seconds."""
    behind: int = 0
    """How many frames it lets pass before it goes itself."""
    behind_rule: Rule | None = None
    """The rule that says so."""
    holders: set[Rule] = field(default_factory=set)
    """The rules that keep it back."""
    injections: list[Injection] = field(default_factory=list)
    """What goes out after it."""
    ending: Ending | None = None
    """What happens to the connection after it."""
    ended_by: Rule | None = None
    """The rule that says so."""
    is_over: bool = False
    """Whether no other rule sees it."""

    def end(self, ending: Ending, octets: bytes, by: Rule) -> None:
        """Have the connection end, with these octets as the last ones."""
        self.octets = octets
        self.ending = ending
        self.ended_by = by
        self.is_over = True


#: What a rule does to a piece, with numbers that are random, but the same in every run.
Act = Callable[[Passage, "Rule", Random], object]


class Breakable(Protocol):
    """What a rule can do to a whole connection."""

    def end(self, ending: Ending, why: Rule) -> None:
        """End it."""

    def stop_reading(self, side: End, why: Rule) -> None:
        """Have one of its ends seem not to read any more, until the rule is removed."""

    def inject(self, injection: Injection) -> None:
        """Put something in."""


#: What a rule does to a connection.
ActOn = Callable[[Breakable, "Rule"], object]


@dataclass(eq=False, kw_only=True)
class Rule:
    """What is to happen, to what, and when."""

    kind: str
    """The name of the method that makes it."""
    match: Match
    """The frames, or whatever else it is about; of anything else only direction and connection."""
    about: About
    """What it acts on."""
    details: str = ""
    """What exactly is to happen, as the end of a sentence."""
    nth: int | None = None
    """Which of the matches it is that it happens to; ``None``: all that the rest allows."""
    every: int | None = None
    """Of how many matches it happens to the last."""
    times: int | None = None
    """How often it happens at most."""
    probability: float | None = None
    """How likely it happens, from 0 to 1."""
    later: bool = False
    """Whether it happens to connections that come later, too."""
    bytes_per_s: float = 0.0
    """How much passes at most in each direction of a connection."""
    act: Act | None = None
    """What happens to a piece."""
    act_on: ActOn | None = None
    """What happens to a whole connection."""
    number: int = 0
    """Its place among all rules that there have been, from 1."""
    matched: int = 0
    """How often it could have happened, but for nth, every, times and probability."""
    count: int = 0
    """How often it has happened."""
    changed: threading.Condition = field(default_factory=threading.Condition)
    """Held while ``count`` is changed, and notified then."""

    def __post_init__(self) -> None:
        """Take the direction from the command if there is one."""
        self.direction: Direction | None = self.match.direction
        if self.direction is None and self.match.command is not None:
            self.direction = "received" if self.match.command in _RECEIVED else "sent"
        check_whole(1, nth=self.nth, every=self.every, times=self.times)
        check_number(0, 1, probability=self.probability)

    def concerns(self, direction: Direction, connection: int) -> bool:
        """Whether it is about what goes this way on this connection."""
        return (
            self.about in ("frames", "beats", "octets")
            and self.direction in (None, direction)
            and self.match.connection in (None, connection)
        )

    def takes(
        self, direction: Direction, connection: int, frame: Frame | None, *, is_beat: bool
    ) -> bool:
        """Whether it is about this piece of what it concerns."""
        if self.about == "frames":
            return frame is not None and self.match(direction, connection, frame)
        return is_beat or self.about == "octets"

    def strikes(self, random: Random, *, may_strike: bool = True) -> bool:
        """Count a match, and decide whether it happens."""
        self.matched += 1
        is_likely = self.probability is None or random.random() < self.probability
        if (
            not is_likely
            or not may_strike
            or self.nth not in (None, self.matched)
            or (self.every is not None and self.matched % self.every)
            or (self.times is not None and self.count >= self.times)
        ):
            return False
        self.happened()
        return True

    def happened(self) -> None:
        """Count that it has happened."""
        with self.changed:
            self.count += 1
            self.changed.notify_all()

    def __str__(self) -> str:
        """In words."""
        words = [f"{self.kind}: {self._object()}".removesuffix(": ")]
        if self.details:
            words.append(self.details)
        if self.nth is not None:
            words.append(f"only the {_ordinal(self.nth)}")
        if self.every is not None:
            words.append(f"every {_ordinal(self.every)}")
        if self.times is not None:
            words.append("once" if self.times == 1 else f"at most {self.times} times")
        if self.probability is not None:
            words.append(f"with probability {self.probability:g}")
        return ", ".join(words)

    def _object(self) -> str:
        words = str(self.match)
        if self.about == "beats":
            return words.removeprefix("any frame").lstrip()
        if self.about in ("octets", "rate"):
            return words.replace("any frame", "all octets", 1)
        if self.about != "frames":
            number = self.match.connection
            return "connections" if number is None else f"connection {number}"
        return words


def _ordinal(number: int) -> str:
    suffix = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10)
    return f"{number}{suffix or 'th'}"


def _conditions(where: Mapping[str, Any]) -> dict[str, Any]:
    return {name: where[name] for name in _CONDITIONS if name in where}


def rule_of_frames(
    kind: str,
    act: Act,
    command: str | None,
    where: Mapping[str, Any],
    details: str = "",
    *,
    octets: bool = False,
) -> Rule:
    """A rule about frames, or if it may be and nothing says which frames about all octets."""
    names = {name: value for name, value in where.items() if name not in _CONDITIONS}
    match = Match.of(command, **names)
    is_any = where.keys() <= {"connection", "direction"} and command is None
    return Rule(
        kind=kind,
        match=match,
        about="octets" if octets and is_any else "frames",
        details=details,
        act=act,
        **_conditions(where),
    )


def rule_of_connections(
    kind: str, act_on: ActOn, where: Mapping[str, Any], details: str, *, later: bool = False
) -> Rule:
    """A rule about whole connections."""
    others = where.keys() - {"connection", *_CONDITIONS}
    if others:
        raise ValueError(f"{min(others)} means a frame, and later connections: not both")
    return Rule(
        kind=kind,
        match=Match(connection=where.get("connection")),
        about="connections",
        details=details,
        later=later,
        act_on=act_on,
        **_conditions(where),
    )


def is_about_connections(command: str | None, where: Mapping[str, Any]) -> bool:
    """Whether nothing says which frame is meant."""
    return command is None and where.keys() <= {"connection"}
