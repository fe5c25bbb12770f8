"""The available faults between clients and a broker."""

from __future__ import annotations

from random import Random
from typing import Any, Final, get_args

from stompkit.frames import VERSIONS, Frame, encode
from stompkit.testing.frames.events import End
from stompkit.testing.frames.matching import Direction, Match
from stompkit.testing.proxy.checks import check_number, check_whole, check_word
from stompkit.testing.proxy.faults import Fault
from stompkit.testing.proxy.rules import (
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
    """The faults, one method each.

    ``command`` and ``**where`` select frames, as ``Match.of`` does: ``headers``, ``body``,
    ``direction``, ``connection``, and further keywords are headers, with ``_`` for ``-``. Of those
    frames ``nth`` selects only one, counted from 1, and ``every`` selects every second, third, ...
    frame. ``probability`` selects each with a probability from 0 to 1, and ``times`` limits their
    number. The frames of all connections are counted together, unless ``connection`` names one.

    All raise ValueError or TypeError for invalid arguments. Faults act in the order in which they
    were created, each on the result of the earlier ones.
    """

    def _put(self, rule: Rule) -> Fault:
        """Activate a rule."""
        raise NotImplementedError

    # Faults of frames.

    def drop(self, command: str | None = None, **where: Any) -> Fault:
        """Drop frames. Heart-beats pass; ``hold`` keeps everything back."""
        return self._put(rule_of_frames("drop", _lose, command, where))

    def duplicate(self, command: str | None = None, *, copies: int = 1, **where: Any) -> Fault:
        """Deliver frames once more, or ``copies`` times more, immediately one after the other."""
        check_whole(1, copies=copies)

        def act(passage: Passage, rule: Rule, random: Random) -> None:
            passage.octets *= copies + 1

        return self._put(rule_of_frames("duplicate", act, command, where, f"{copies} more"))

    def reorder(self, command: str | None = None, *, by: int = 1, **where: Any) -> Fault:
        """Deliver frames after the next frame, or after the next ``by`` frames.

        Frames that overtake one are not held by the same fault. A frame that is not overtaken goes
        out when the sender closes the connection, or when the fault is removed.
        """
        check_whole(1, by=by)

        def act(passage: Passage, rule: Rule, random: Random) -> None:
            passage.behind = by
            passage.behind_rule = rule

        return self._put(rule_of_frames("reorder", act, command, where, f"behind the next {by}"))

    def corrupt(self, command: str | None = None, *, octets: int = 1, **where: Any) -> Fault:
        """Change ``octets`` bytes of frames, anywhere from command to NUL, both included."""
        check_whole(1, octets=octets)

        def act(passage: Passage, rule: Rule, random: Random) -> None:
            changed = bytearray(passage.octets)
            for place in random.sample(range(len(changed)), min(octets, len(changed))):
                changed[place] ^= random.randrange(1, 256)
            passage.octets = bytes(changed)

        return self._put(rule_of_frames("corrupt", act, command, where, _bytes(octets)))

    def truncate(
        self, command: str | None = None, *, octets: int | None = None, **where: Any
    ) -> Fault:
        """Deliver the first ``octets`` bytes of a frame, by default half, and close both sides."""
        check_whole(0, octets=octets)

        def act(passage: Passage, rule: Rule, random: Random) -> None:
            kept = len(passage.octets) // 2 if octets is None else octets
            passage.end("close", passage.octets[:kept], rule)

        details = "after half of it" if octets is None else f"after {_bytes(octets)}"
        return self._put(rule_of_frames("truncate", act, command, where, details))

    def inject(
        self,
        what: Frame | bytes,
        command: str | None = None,
        *,
        direction: Direction = "sent",
        **where: Any,
    ) -> Fault:
        """Inject a frame, or raw bytes, that nobody sent; between two frames.

        ``direction`` is its direction: ``sent`` to the client, ``received`` by the broker. Without
        further conditions this happens immediately, on the open connections (``connection``: only
        on this one). With ``command`` and other conditions it happens after each frame that
        matches, in either direction. Other faults do not act on it. Raises LocalProtocolError for a
        frame that cannot be encoded for all versions of STOMP: pass bytes then.
        """
        check_word(_DIRECTIONS, direction=direction)
        if isinstance(what, Frame):
            for version in VERSIONS:
                encode(what, version)
        elif not isinstance(what, bytes):
            raise TypeError(f"what is {what!r}, neither a frame nor bytes")
        injection = Injection(direction, what)
        words = what.command if isinstance(what, Frame) else _bytes(len(what))
        details = f"{words} to the {'client' if direction == 'sent' else 'broker'}"

        def act(passage: Passage, rule: Rule, random: Random) -> None:
            passage.injections.append(injection)

        def act_on(connection: Breakable, rule: Rule) -> None:
            connection.inject(injection)

        if is_about_connections(command, where):
            return self._put(rule_of_connections("inject", act_on, where, details))
        return self._put(rule_of_frames("inject", act, command, where, details))

    # Faults of frames, or of all bytes.

    def delay(
        self, seconds: float, command: str | None = None, *, jitter_s: float = 0.0, **where: Any
    ) -> Fault:
        """Delay frames by ``seconds``, plus up to ``jitter_s``; later frames wait for them.

        Without conditions on frames, the delay applies to all bytes as they come.
        """
        check_number(0, None, seconds=seconds, jitter_s=jitter_s)

        def act(passage: Passage, rule: Rule, random: Random) -> None:
            passage.delays[rule] = seconds + (jitter_s * random.random() if jitter_s else 0)

        details = f"{seconds:g} s" + (f" to {seconds + jitter_s:g} s" if jitter_s else "")
        return self._put(rule_of_frames("delay", act, command, where, details, octets=True))

    def split(
        self, command: str | None = None, *, octets: int = 1, pause_s: float = 0.001, **where: Any
    ) -> Fault:
        """Deliver frames in pieces of ``octets`` bytes, ``pause_s`` seconds apart.

        Without conditions on frames, it applies to all bytes.
        """
        check_whole(1, octets=octets)
        check_number(0, None, pause_s=pause_s)

        def act(passage: Passage, rule: Rule, random: Random) -> None:
            passage.slices[rule] = octets, pause_s

        details = f"{_bytes(octets)} at a time"
        return self._put(rule_of_frames("split", act, command, where, details, octets=True))

    def hold(self, command: str | None = None, **where: Any) -> Fault:
        """Keep frames back until the fault is removed; then they go out in their order.

        Without conditions on frames, it applies to all bytes, including heart-beats and the end of
        the stream: this simulates a network that drops everything without a notice to either end.
        """

        def act(passage: Passage, rule: Rule, random: Random) -> None:
            passage.holders.add(rule)

        return self._put(rule_of_frames("hold", act, command, where, octets=True))

    def withhold_receipts(self, **where: Any) -> Fault:
        """Keep RECEIPT frames back, or those that match: ``hold("RECEIPT", ...)``."""
        return self.hold("RECEIPT", **where)

    def swallow_heart_beats(
        self, direction: Direction | None = None, *, connection: int | None = None
    ) -> Fault:
        """Drop the line ends between frames, in one direction or both."""
        match = Match(direction=direction, connection=connection)
        return self._put(Rule(kind="swallow_heart_beats", match=match, about="beats", act=_lose))

    def bandwidth(
        self,
        bytes_per_s: float,
        *,
        direction: Direction | None = None,
        connection: int | None = None,
    ) -> Fault:
        """Limit the bytes per second in each direction of each connection.

        The fault counts an occurrence whenever bytes have to wait.
        """
        check_number(1, None, bytes_per_s=bytes_per_s)
        return self._put(
            Rule(
                kind="bandwidth",
                match=Match(direction=direction, connection=connection),
                about="rate",
                details=f"{bytes_per_s:g} bytes per second",
                bytes_per_s=bytes_per_s,
            )
        )

    # Faults of connections.

    def close(
        self, command: str | None = None, *, after: bool = False, later: bool = False, **where: Any
    ) -> Fault:
        """Close both sides in order.

        With ``command`` or other conditions this replaces a frame that matches, or follows it with
        ``after``. Without conditions, it applies immediately to the open connections
        (``connection``: only to this one). ``later=True`` applies it to later connections as well,
        as soon as they are connected to the broker, and ``nth`` and so on count connections.
        """
        return self._end("close", command, where, after=after, later=later)

    def reset(
        self, command: str | None = None, *, after: bool = False, later: bool = False, **where: Any
    ) -> Fault:
        """Reset both sides (TCP reset); conditions and timing are as for ``close``."""
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
        """Disconnect one side without notifying the other; conditions are as for ``close``.

        The side that is ``gone`` gets a reset. The other one stays connected: data that it sends is
        discarded, and no data comes. When the fault is removed it gets a reset, too.
        """
        check_word(_ENDS, gone=gone)
        ending: Ending = "broker gone" if gone == "broker" else "client gone"
        return self._end(ending, command, where, after=after, later=later)

    def stop_reading(
        self, side: End = "client", *, connection: int | None = None, later: bool = False
    ) -> Fault:
        """Stop reading on one side: data that is sent to it stays in the buffers.

        ``client`` simulates a consumer that hangs: the broker can send until all buffers on the way
        are full. This applies immediately to the open connections; ``later`` is as for ``close``.
        """
        check_word(_ENDS, side=side)

        def act_on(each: Breakable, rule: Rule) -> None:
            each.stop_reading(side, rule)

        where = {"connection": connection}
        details = f"at the {side}"
        return self._put(rule_of_connections("stop_reading", act_on, where, details, later=later))

    def refuse(self, times: int | None = None) -> Fault:
        """Refuse new connections.

        With ``times``, this number of connections is accepted and reset. Without it the proxy stops
        listening until the fault is removed, so that the system refuses connections
        (``ECONNREFUSED``).
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
        """End connections, immediately or at a frame."""
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


def _bytes(number: int) -> str:
    return f"{number} byte{'s' * (number != 1)}"
