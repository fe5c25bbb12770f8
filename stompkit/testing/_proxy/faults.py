"""Faults: what can go wrong between clients and a broker, and when."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from types import TracebackType
from typing import Any, Final, Literal, NamedTuple, Protocol, Self, get_args

from stompkit.frames import COMMANDS, VERSIONS, Frame, Role, encode
from stompkit.testing._frames.events import End
from stompkit.testing._frames.matching import Direction, Match

__all__ = [
    "Connection",
    "Ending",
    "Fault",
    "FaultMethods",
    "FaultNotSeen",
    "Injection",
    "Passage",
    "Rule",
]

_ENDS: Final = get_args(End)
_DIRECTIONS: Final = get_args(Direction)
_RECEIVED: Final = [name for name, row in COMMANDS.items() if row.sender is Role.CLIENT]

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


class Connection(Protocol):
    """What a rule can do to a whole connection."""

    def end(self, ending: Ending, why: Rule) -> None:
        """End it."""

    def stop_reading(self, side: End, why: Rule) -> None:
        """Have one of its ends seem not to read any more, until the rule is removed."""

    def inject(self, injection: Injection) -> None:
        """Put something in."""


#: What a rule does to a connection.
ActOn = Callable[[Connection, "Rule"], object]


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
        _check_whole(1, nth=self.nth, every=self.every, times=self.times)
        _check_number(0, 1, probability=self.probability)

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


class FaultNotSeen(AssertionError):
    """A fault did not happen as often as a test expected."""


class Fault:
    """A fault that is in force until it is removed.

    A context manager: leaving it removes the fault. All methods can be called from any thread.
    """

    def __init__(self, rule: Rule, remove: Callable[[Rule], None]) -> None:
        """Made by the methods of a proxy."""
        self._rule = rule
        self._remove = remove

    @property
    def kind(self) -> str:
        """The name of the method that made it."""
        return self._rule.kind

    @property
    def match(self) -> Match:
        """What it is about; for whole connections only ``connection`` says something."""
        return self._rule.match

    @property
    def count(self) -> int:
        """How often it has happened."""
        return self._rule.count

    def wait(self, count: int = 1, timeout_s: float = 5.0) -> None:
        """Wait until it has happened ``count`` times in all.

        Raises FaultNotSeen when ``timeout_s`` seconds have passed.
        """
        rule = self._rule
        with rule.changed:
            if rule.changed.wait_for(lambda: rule.count >= count, timeout_s):
                return
        could = f"; {rule.matched} could have been it" if rule.matched > rule.count else ""
        raise FaultNotSeen(
            f"{self}: happened {rule.count} times within {timeout_s:g} s, wanted {count}{could}"
        )

    def remove(self) -> None:
        """Have it happen no more; what it holds or delays goes out. Harmless the second time."""
        self._remove(self._rule)

    def __enter__(self) -> Self:
        """Return the fault."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Remove it."""
        self.remove()

    def __str__(self) -> str:
        """In words."""
        return str(self._rule)

    def __repr__(self) -> str:
        """In words, and how often it has happened."""
        return f"<Fault {self}: happened {self.count} times>"


class FaultMethods:
    """The faults, each a method.

    ``command`` and ``**where`` say which frames are meant, as ``Match.of`` takes them: ``headers``,
    ``body``, ``direction``, ``connection``, and further keywords are headers, with ``_`` for
    ``-``. Of those frames ``nth`` takes only one, counted from 1, ``every`` every second, third,
    ..., ``probability`` each with a probability from 0 to 1, and ``times`` so many at most. Counted
    are the frames of all connections together, unless ``connection`` names one.

    All raise ValueError or TypeError for what makes no sense. Faults act in the order in which
    they were made, each on what the earlier ones left of a frame.
    """

    def _put(self, rule: Rule) -> Fault:
        """Put a rule in force."""
        raise NotImplementedError

    # What happens to frames.

    def drop(self, command: str | None = None, **where: Any) -> Fault:
        """Lose frames. Heart-beats pass; ``hold`` keeps everything back."""
        return self._put(_rule("drop", _lose, command, where))

    def duplicate(self, command: str | None = None, *, copies: int = 1, **where: Any) -> Fault:
        """Deliver frames once more, or ``copies`` times more, one right after the other."""
        _check_whole(1, copies=copies)

        def act(passage: Passage, rule: Rule, random: Random) -> None:
            passage.octets *= copies + 1

        return self._put(_rule("duplicate", act, command, where, f"{copies} more"))

    def reorder(self, command: str | None = None, *, by: int = 1, **where: Any) -> Fault:
        """Let frames be overtaken by the next frame, or the next ``by`` frames.

        Those that overtake one are not held up by the same fault. A frame that nothing overtakes
        goes when the sender closes the connection, or when the fault is removed.
        """
        _check_whole(1, by=by)

        def act(passage: Passage, rule: Rule, random: Random) -> None:
            passage.behind = by
            passage.behind_rule = rule

        return self._put(_rule("reorder", act, command, where, f"behind the next {by}"))

    def corrupt(self, command: str | None = None, *, octets: int = 1, **where: Any) -> Fault:
        """Change ``octets`` octets of frames, anywhere between command and NUL, both included."""
        _check_whole(1, octets=octets)

        def act(passage: Passage, rule: Rule, random: Random) -> None:
            changed = bytearray(passage.octets)
            for place in random.sample(range(len(changed)), min(octets, len(changed))):
                changed[place] ^= random.randrange(1, 256)
            passage.octets = bytes(changed)

        return self._put(_rule("corrupt", act, command, where, _octets(octets)))

    def truncate(
        self, command: str | None = None, *, octets: int | None = None, **where: Any
    ) -> Fault:
        """Deliver the first ``octets`` octets of a frame, by default half, and close both sides."""
        _check_whole(0, octets=octets)

        def act(passage: Passage, rule: Rule, random: Random) -> None:
            kept = len(passage.octets) // 2 if octets is None else octets
            passage.end("close", passage.octets[:kept], rule)

        details = "after half of it" if octets is None else f"after {_octets(octets)}"
        return self._put(_rule("truncate", act, command, where, details))

    def inject(
        self,
        what: Frame | bytes,
        command: str | None = None,
        *,
        direction: Direction = "sent",
        **where: Any,
    ) -> Fault:
        """Put in a frame, or octets as they are, that nobody sent; between two frames.

        ``direction`` is where it goes: ``sent`` to the client, ``received`` by the broker. Without
        anything else that happens at once, on the open connections (``connection``: only on this
        one). With ``command`` and so on it happens after each frame that they mean, whichever way
        that goes. Other faults don't act on it. Raises LocalProtocolError for a frame that can't
        be sent on all versions of STOMP: give octets then.
        """
        _check_word(_DIRECTIONS, direction=direction)
        if isinstance(what, Frame):
            for version in VERSIONS:
                encode(what, version)
        elif not isinstance(what, bytes):
            raise TypeError(f"what is {what!r}, neither a frame nor octets")
        injection = Injection(direction, what)
        words = what.command if isinstance(what, Frame) else _octets(len(what))
        details = f"{words} to the {'client' if direction == 'sent' else 'broker'}"

        def act(passage: Passage, rule: Rule, random: Random) -> None:
            passage.injections.append(injection)

        def act_on(connection: Connection, rule: Rule) -> None:
            connection.inject(injection)

        if _is_about_connections(command, where):
            return self._put(_rule_of_connections("inject", act_on, where, details))
        return self._put(_rule("inject", act, command, where, details))

    # What happens to frames, or to all octets.

    def delay(
        self, seconds: float, command: str | None = None, *, jitter_s: float = 0.0, **where: Any
    ) -> Fault:
        """Have frames take ``seconds`` longer, plus up to ``jitter_s``; later ones wait for them.

        Without anything that says which frames it is about all octets, as they come.
        """
        _check_number(0, None, seconds=seconds, jitter_s=jitter_s)

        def act(passage: Passage, rule: Rule, random: Random) -> None:
            passage.delays[rule] = seconds + (jitter_s * random.random() if jitter_s else 0)

        details = f"{seconds:g} s" + (f" to {seconds + jitter_s:g} s" if jitter_s else "")
        return self._put(_rule("delay", act, command, where, details, octets=True))

    def split(
        self, command: str | None = None, *, octets: int = 1, pause_s: float = 0.001, **where: Any
    ) -> Fault:
        """Deliver frames in pieces of ``octets`` octets, ``pause_s`` seconds apart.

        Without anything that says which frames it is about all octets.
        """
        _check_whole(1, octets=octets)
        _check_number(0, None, pause_s=pause_s)

        def act(passage: Passage, rule: Rule, random: Random) -> None:
            passage.slice_bytes = octets
            passage.pause_s = pause_s

        details = f"{_octets(octets)} at a time"
        return self._put(_rule("split", act, command, where, details, octets=True))

    def hold(self, command: str | None = None, **where: Any) -> Fault:
        """Keep frames back until the fault is removed; then they go out in their order.

        Without anything that says which frames it is about all octets, heart-beats and the end of
        the stream included: a network that transports nothing, which neither end is told.
        """

        def act(passage: Passage, rule: Rule, random: Random) -> None:
            passage.holders.add(rule)

        return self._put(_rule("hold", act, command, where, octets=True))

    def withhold_receipts(self, **where: Any) -> Fault:
        """Keep back RECEIPT frames, or those that are meant: ``hold("RECEIPT", ...)``."""
        return self.hold("RECEIPT", **where)

    def swallow_heart_beats(
        self, direction: Direction | None = None, *, connection: int | None = None
    ) -> Fault:
        """Lose the line ends between frames, in one direction or both."""
        match = Match(direction=direction, connection=connection)
        return self._put(Rule(kind="swallow_heart_beats", match=match, about="beats", act=_lose))

    def bandwidth(
        self,
        bytes_per_s: float,
        *,
        direction: Direction | None = None,
        connection: int | None = None,
    ) -> Fault:
        """Let so many octets pass in a second in each direction of each connection, no more.

        It happens whenever octets have to wait for that.
        """
        _check_number(1, None, bytes_per_s=bytes_per_s)
        return self._put(
            Rule(
                kind="bandwidth",
                match=Match(direction=direction, connection=connection),
                about="rate",
                details=f"{bytes_per_s:g} octets per second",
                bytes_per_s=bytes_per_s,
            )
        )

    # What happens to connections.

    def close(
        self, command: str | None = None, *, after: bool = False, later: bool = False, **where: Any
    ) -> Fault:
        """Close both sides, in the orderly way.

        With ``command`` and so on that happens in place of a frame that they mean, or ``after`` it.
        Without, it happens at once to the open connections (``connection``: only to this one); with
        ``later=True`` to those that come later as well, as soon as they have got through to the
        broker, and ``nth`` and so on count connections.
        """
        return self._end("close", command, where, after=after, later=later)

    def reset(
        self, command: str | None = None, *, after: bool = False, later: bool = False, **where: Any
    ) -> Fault:
        """Cut both sides off, with a TCP reset; when, and what it takes, is as for ``close``."""
        return self._end("reset", command, where, after=after, later=later)

    def half_open(
        self,
        command: str | None = None,
        *,
        gone: End = "broker",
        after: bool = False,
        later: bool = False,
        **where: Any,
    ) -> Fault:
        """Cut one side off and leave the other without knowing; when is as for ``close``.

        The side that seems ``gone`` to the other gets a reset. The other one stays connected: what
        it sends goes nowhere, and nothing comes. When the fault is removed it gets a reset, too.
        """
        _check_word(_ENDS, gone=gone)
        ending: Ending = "broker gone" if gone == "broker" else "client gone"
        return self._end(ending, command, where, after=after, later=later)

    def stop_reading(
        self, side: End = "client", *, connection: int | None = None, later: bool = False
    ) -> Fault:
        """Have one side seem not to read any more: what is sent to it stays where it is.

        ``client`` is a consumer that hangs: the broker can send until all buffers on the way are
        full. This happens at once to the open connections; ``later`` is as for ``close``.
        """
        _check_word(_ENDS, side=side)

        def act_on(each: Connection, rule: Rule) -> None:
            each.stop_reading(side, rule)

        where = {"connection": connection}
        details = f"at the {side}"
        return self._put(_rule_of_connections("stop_reading", act_on, where, details, later=later))

    def refuse(self, times: int | None = None) -> Fault:
        """Refuse new connections.

        With ``times`` that many are accepted and reset. Without it nobody listens any more until
        the fault is removed, so that the system refuses connections (``ECONNREFUSED``).
        """
        return self._put(Rule(kind="refuse", match=Match(), about="listening", times=times))

    def _end(
        self,
        ending: Ending,
        command: str | None,
        where: dict[str, Any],
        *,
        after: bool,
        later: bool,
    ) -> Fault:
        """End connections, at once or at a frame."""
        kind, details = (ending, "") if ending in ("close", "reset") else ("half_open", ending)

        def act(passage: Passage, rule: Rule, random: Random) -> None:
            passage.end(ending, passage.octets if after else b"", rule)

        def act_on(connection: Connection, rule: Rule) -> None:
            connection.end(ending, rule)

        if later or _is_about_connections(command, where):
            if command is not None or after:
                raise ValueError("command and after mean a frame, and later connections: not both")
            return self._put(_rule_of_connections(kind, act_on, where, details, later=later))
        details = ", ".join(filter(None, [details, "after it" * after]))
        return self._put(_rule(kind, act, command, where, details))


def _lose(passage: Passage, rule: Rule, random: Random) -> None:
    passage.octets = b""
    passage.is_over = True


#: The keywords that say which of the matches are meant.
_CONDITIONS: Final = ("nth", "every", "times", "probability")


def _conditions(where: Mapping[str, Any]) -> dict[str, Any]:
    return {name: where[name] for name in _CONDITIONS if name in where}


def _rule(
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


def _rule_of_connections(
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


def _is_about_connections(command: str | None, where: Mapping[str, Any]) -> bool:
    """Whether nothing says which frame is meant."""
    return command is None and where.keys() <= {"connection"}


def _octets(number: int) -> str:
    return f"{number} octet{'s' * (number != 1)}"


def _ordinal(number: int) -> str:
    suffix = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10)
    return f"{number}{suffix or 'th'}"


def _check_whole(least: int, **values: int | None) -> None:
    """Raise ValueError for a number below ``least``, TypeError for what is no whole number."""
    for name, value in values.items():
        if value is None:
            continue
        if type(value) is not int:
            raise TypeError(f"{name} is {value!r}, not a whole number")
        if value < least:
            raise ValueError(f"{name} is {value}, not {least} or more")


def _check_number(least: float, most: float | None, **values: float | None) -> None:
    """Raise ValueError for a number out of range, TypeError for what is no number."""
    for name, value in values.items():
        if value is None:
            continue
        if type(value) not in (int, float):
            raise TypeError(f"{name} is {value!r}, not a number")
        if not (least <= value < math.inf) or (most is not None and value > most):
            range_ = f"{least:g} or more" if most is None else f"{least:g} to {most:g}"
            raise ValueError(f"{name} is {value}, not {range_}")


def _check_word(words: tuple[str, ...], **values: str) -> None:
    """Raise ValueError for what is none of the words."""
    for name, value in values.items():
        if value not in words:
            raise ValueError(f"{name} is {value!r}, not {' or '.join(words)}")
