"""Rules: actions on traffic, with their conditions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, Literal, NamedTuple, Protocol

from stompkit.frames import COMMANDS, VERSIONS, Frame, Role, encode
from stompkit.testing.frames.events import End
from stompkit.testing.frames.matching import Direction, Match, match_of_call
from stompkit.testing.proxy.checks import check_number, check_whole

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
#: The keywords that select some of the matches.
_CONDITIONS: Final = ("nth", "every", "times", "probability")

#: Kinds of endings: end of one direction, orderly close of both ends, reset of both, or reset of
#: one end without notifying the other.
Ending = Literal["eof", "close", "reset", "client gone", "broker gone"]
#: Objects that a rule acts on: frames, line ends between them, all bytes, their rate, whole
#: connections, or connection attempts.
About = Literal["frames", "beats", "octets", "rate", "connections", "listening"]


class Injection(NamedTuple):
    """Data injected by a rule."""

    direction: Direction
    """The direction of the data."""
    what: Frame | bytes
    """A frame, or bytes that are sent unchanged."""

    def octets(self, version: str) -> bytes:
        """Return the bytes for a connection of a version."""
        if isinstance(self.what, bytes):
            return self.what
        return encode(self.what, next((each for each in VERSIONS if each == version), None))


@dataclass(slots=True, eq=False)
class Passage:
    """A piece of traffic with the effects of the rules on it."""

    octets: bytes
    """The bytes to write; empty for a dropped frame."""
    is_frame: bool = False
    """True if the piece was a frame."""
    delays: dict[Rule, float] = field(default_factory=dict)
    """Delay in seconds by each rule; all later traffic is delayed, too."""
    slices: dict[Rule, tuple[int, float]] = field(default_factory=dict)
    """Maximum number of bytes written at once, and the pause after them, by each rule."""
    behind: int = 0
    """Number of frames that overtake it."""
    behind_rule: Rule | None = None
    """The rule that set ``behind``."""
    holders: set[Rule] = field(default_factory=set)
    """The rules that hold it back."""
    injections: list[Injection] = field(default_factory=list)
    """Data to write after it."""
    ending: Ending | None = None
    """The ending of the connection after it."""
    ended_by: Rule | None = None
    """The rule that set ``ending``."""
    is_over: bool = False
    """True if no further rule applies."""

    @property
    def slice_bytes(self) -> int:
        """Maximum number of bytes written at once, by the latest rule; 0: all."""
        return next(reversed(self.slices.values()), (0, 0.0))[0]

    @property
    def pause_s(self) -> float:
        """Pause in seconds between two slices."""
        return next(reversed(self.slices.values()), (0, 0.0))[1]

    def keep_effects_of(self, rules: Collection[Rule]) -> bool:
        """Undo what other rules do to data that waits; return True if anything changed.

        Changed bytes, injections and endings stay: they have happened.
        """
        gone = {*self.delays, *self.slices, *self.holders, self.behind_rule} - {*rules, None}
        self.delays = {rule: each for rule, each in self.delays.items() if rule not in gone}
        self.slices = {rule: each for rule, each in self.slices.items() if rule not in gone}
        self.holders -= gone
        if self.behind_rule in gone:
            self.behind, self.behind_rule = 0, None
        return bool(gone)

    def end(self, ending: Ending, octets: bytes, by: Rule) -> None:
        """End the connection after these bytes."""
        self.octets = octets
        self.ending = ending
        self.ended_by = by
        self.is_over = True


#: Action of a rule on a piece, with random numbers that are the same in every run.
Act = Callable[[Passage, "Rule", Random], object]


class Breakable(Protocol):
    """Actions of a rule on a whole connection."""

    def end(self, ending: Ending, why: Rule) -> None:
        """End the connection."""

    def stop_reading(self, side: End, why: Rule) -> None:
        """Stop reading on one side until the rule is removed."""

    def inject(self, injection: Injection) -> None:
        """Inject a frame or bytes."""


#: Action of a rule on a connection.
ActOn = Callable[[Breakable, "Rule"], object]


@dataclass(eq=False, kw_only=True)
class Rule:
    """An action with its conditions."""

    kind: str
    """Name of the method that creates the rule."""
    match: Match
    """Condition of the rule; for traffic other than frames only direction and connection count."""
    about: About
    """Kind of traffic that the rule acts on."""
    details: str = ""
    """Description of the action, as the end of a sentence."""
    nth: int | None = None
    """Number of the only match it acts on, counted from 1; ``None``: all that the rest allows."""
    every: int | None = None
    """Interval of matches: it acts on the last of this number of matches."""
    times: int | None = None
    """Maximum number of times it acts."""
    probability: float | None = None
    """Probability of each action, from 0 to 1."""
    later: bool = False
    """True if it also acts on later connections."""
    bytes_per_s: float = 0.0
    """Maximum rate in bytes per second in each direction of a connection."""
    act: Act | None = None
    """Action on a piece."""
    act_on: ActOn | None = None
    """Action on a whole connection."""
    number: int = 0
    """Sequence number among all rules ever added, from 1."""
    matched: int = 0
    """Number of matches, regardless of nth, every, times and probability."""
    count: int = 0
    """Number of times it has acted."""
    changed: threading.Condition = field(default_factory=threading.Condition)
    """Condition that is held while ``count`` changes, and notified afterwards."""

    def __post_init__(self) -> None:
        """Derive the direction from the command, if there is one."""
        self.direction: Direction | None = self.match.direction
        if self.direction is None and self.match.command is not None:
            self.direction = "received" if self.match.command in _RECEIVED else "sent"
        check_whole(1, nth=self.nth, every=self.every, times=self.times)
        check_number(0, 1, probability=self.probability)

    def concerns(self, direction: Direction, connection: int) -> bool:
        """Return True if it acts on traffic in this direction on this connection."""
        return (
            self.about in ("frames", "beats", "octets")
            and self.direction in (None, direction)
            and self.match.connection in (None, connection)
        )

    def takes(
        self, direction: Direction, connection: int, frame: Frame | None, *, is_beat: bool
    ) -> bool:
        """Return True if it acts on this piece of the traffic that it concerns."""
        if self.about == "frames":
            return frame is not None and self.match(direction, connection, frame)
        return is_beat or self.about == "octets"

    def strikes(self, random: Random, *, may_strike: bool = True) -> bool:
        """Count a match, and return True if the rule acts on it."""
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
        """Count an action."""
        with self.changed:
            self.count += 1
            self.changed.notify_all()

    def __str__(self) -> str:
        """Return the rule in words."""
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
            return words.replace("any frame", "all bytes", 1)
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
    """Return a rule about frames; with *octets* and no condition, about all bytes."""
    names = {name: value for name, value in where.items() if name not in _CONDITIONS}
    match = match_of_call(command, names, _CONDITIONS)
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
    """Return a rule about whole connections."""
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
    """Return True if no condition selects frames."""
    return command is None and where.keys() <= {"connection"}
