"""The faults that there are: what can go wrong between clients and a broker."""

from __future__ import annotations

from random import Random
from typing import Any, Final, get_args

from stompkit.frames import VERSIONS, Frame, encode
from stompkit.testing._frames.events import End
from stompkit.testing._frames.matching import Direction, Match
from stompkit.testing._proxy.checks import check_number, check_whole, check_word
from stompkit.testing._proxy.faults import Fault
from stompkit.testing._proxy.rules import (
    Breakable,
    Ending,
    Injection,
    Passage,
    Rule,
    is_about_connections,
    rule_of_connections,
    rule_of_frames,
)

__all__ = ["FaultMethods"]

_ENDS: Final = get_args(End)
_DIRECTIONS: Final = get_args(Direction)


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
        return self._put(rule_of_frames("drop", _lose, command, where))

    def duplicate(self, command: str | None = None, *, copies: int = 1, **where: Any) -> Fault:
        """Deliver frames once more, or ``copies`` times more, one right after the other."""
        check_whole(1, copies=copies)

        def act(passage: Passage, rule: Rule, random: Random) -> None:
            passage.octets *= copies + 1

        return self._put(rule_of_frames("duplicate", act, command, where, f"{copies} more"))

    def reorder(self, command: str | None = None, *, by: int = 1, **where: Any) -> Fault:
        """Let frames be overtaken by the next frame, or the next ``by`` frames.

        Those that overtake one are not held up by the same fault. A frame that nothing overtakes
        goes when the sender closes the connection, or when the fault is removed.
        """
        check_whole(1, by=by)

        def act(passage: Passage, rule: Rule, random: Random) -> None:
            passage.behind = by
            passage.behind_rule = rule

        return self._put(rule_of_frames("reorder", act, command, where, f"behind the next {by}"))

    def corrupt(self, command: str | None = None, *, octets: int = 1, **where: Any) -> Fault:
        """Change ``octets`` octets of frames, anywhere between command and NUL, both included."""
        check_whole(1, octets=octets)

        def act(passage: Passage, rule: Rule, random: Random) -> None:
            changed = bytearray(passage.octets)
            for place in random.sample(range(len(changed)), min(octets, len(changed))):
                changed[place] ^= random.randrange(1, 256)
            passage.octets = bytes(changed)

        return self._put(rule_of_frames("corrupt", act, command, where, _octets(octets)))

    def truncate(
        self, command: str | None = None, *, octets: int | None = None, **where: Any
    ) -> Fault:
        """Deliver the first ``octets`` octets of a frame, by default half, and close both sides."""
        check_whole(0, octets=octets)

        def act(passage: Passage, rule: Rule, random: Random) -> None:
            kept = len(passage.octets) // 2 if octets is None else octets
            passage.end("close", passage.octets[:kept], rule)

        details = "after half of it" if octets is None else f"after {_octets(octets)}"
        return self._put(rule_of_frames("truncate", act, command, where, details))

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
        check_word(_DIRECTIONS, direction=direction)
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

        def act_on(connection: Breakable, rule: Rule) -> None:
            connection.inject(injection)

        if is_about_connections(command, where):
            return self._put(rule_of_connections("inject", act_on, where, details))
        return self._put(rule_of_frames("inject", act, command, where, details))

    # What happens to frames, or to all octets.

    def delay(
        self, seconds: float, command: str | None = None, *, jitter_s: float = 0.0, **where: Any
    ) -> Fault:
        """Have frames take ``seconds`` longer, plus up to ``jitter_s``; later ones wait for them.

        Without anything that says which frames it is about all octets, as they come.
        """
        check_number(0, None, seconds=seconds, jitter_s=jitter_s)

        def act(passage: Passage, rule: Rule, random: Random) -> None:
            passage.delays[rule] = seconds + (jitter_s * random.random() if jitter_s else 0)

        details = f"{seconds:g} s" + (f" to {seconds + jitter_s:g} s" if jitter_s else "")
        return self._put(rule_of_frames("delay", act, command, where, details, octets=True))

    def split(
        self, command: str | None = None, *, octets: int = 1, pause_s: float = 0.001, **where: Any
    ) -> Fault:
        """Deliver frames in pieces of ``octets`` octets, ``pause_s`` seconds apart.

        Without anything that says which frames it is about all octets.
        """
        check_whole(1, octets=octets)
        check_number(0, None, pause_s=pause_s)

        def act(passage: Passage, rule: Rule, random: Random) -> None:
            passage.slice_bytes = octets
            passage.pause_s = pause_s

        details = f"{_octets(octets)} at a time"
        return self._put(rule_of_frames("split", act, command, where, details, octets=True))

    def hold(self, command: str | None = None, **where: Any) -> Fault:
        """Keep frames back until the fault is removed; then they go out in their order.

        Without anything that says which frames it is about all octets, heart-beats and the end of
        the stream included: a network that transports nothing, which neither end is told.
        """

        def act(passage: Passage, rule: Rule, random: Random) -> None:
            passage.holders.add(rule)

        return self._put(rule_of_frames("hold", act, command, where, octets=True))

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
        check_number(1, None, bytes_per_s=bytes_per_s)
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
        check_word(_ENDS, gone=gone)
        ending: Ending = "broker gone" if gone == "broker" else "client gone"
        return self._end(ending, command, where, after=after, later=later)

    def stop_reading(
        self, side: End = "client", *, connection: int | None = None, later: bool = False
    ) -> Fault:
        """Have one side seem not to read any more: what is sent to it stays where it is.

        ``client`` is a consumer that hangs: the broker can send until all buffers on the way are
        full. This happens at once to the open connections; ``later`` is as for ``close``.
        """
        check_word(_ENDS, side=side)

        def act_on(each: Breakable, rule: Rule) -> None:
            each.stop_reading(side, rule)

        where = {"connection": connection}
        details = f"at the {side}"
        return self._put(rule_of_connections("stop_reading", act_on, where, details, later=later))

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

        def act_on(connection: Breakable, rule: Rule) -> None:
            connection.end(ending, rule)

        if later or is_about_connections(command, where):
            if command is not None or after:
                raise ValueError("command and after mean a frame, and later connections: not both")
            return self._put(rule_of_connections(kind, act_on, where, details, later=later))
        details = ", ".join(filter(None, [details, "after it" * after]))
        return self._put(rule_of_frames(kind, act, command, where, details))


def _lose(passage: Passage, rule: Rule, random: Random) -> None:
    passage.octets = b""
    passage.is_over = True


def _octets(number: int) -> str:
    return f"{number} octet{'s' * (number != 1)}"
