"""Rate-limited logins: queueing, and delayed refusals."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from math import ceil
from typing import Final, NamedTuple, Protocol, runtime_checkable

from stompkit.server.interfaces import Clock, Credentials, User
from stompkit.server.log import login_events
from stompkit.server.log.event import current_failure
from stompkit.server.login.login_limiter import Attempt, LoginLimiter, Outcome, Repute, Verdict

__all__ = ["Decided", "Decider", "LimitedAuthenticator", "ReloadedSource"]


#: Maximum number of delayed refusals; further ones are sent at once.
_MOST_HELD: Final = 1_000
#: Maximum number of waiting logins; further ones are refused.
_MOST_WAITING: Final = 10_000
#: Maximum number of concurrent checks, besides those of users known at their addresses.
_MOST_OPEN: Final = 20
#: Number of priority levels of waiting addresses; the first is for those without wrong passcodes.
_LINES: Final = 10
#: Back-off after checking a suspected guess: this multiple of the check's duration. The maximum in
#: seconds follows.
_REST: Final = 3
_MOST_REST_S: Final = 1.0
#: Approximate number of recent unknown clients over which the share of wrong passcodes is averaged.
#: The share from which the next one is treated as a guess follows.
_LATELY: Final = 16
_GUESSED: Final = 0.5
#: Maximum number of waiting logins refused in one cycle.
_MOST_REFUSED: Final = 20
#: Maximum number of addresses whose refusal is remembered as logged.
_MOST_LOGGED: Final = 1_000


class Decided(NamedTuple):
    """Result of a login: the user, or ``None`` if it is refused."""

    user: User | None
    is_certain: bool = True
    """True if the login could be checked; False if the checking service has failed."""


class Decider(Protocol):
    """An authenticator that also reports if it could decide."""

    def decide(self, credentials: Credentials, answer: Callable[[Decided], None]) -> None:
        """Call ``answer`` once, immediately or later, from the broker's thread."""


@runtime_checkable
class ReloadedSource(Protocol):
    """A decider or checker whose accepted passcodes can change while the broker runs."""

    def reloads(self) -> int:
        """Return how often they have changed."""


class _Login(NamedTuple):
    """A waiting login."""

    attempt: Attempt
    credentials: Credentials
    answer: Callable[[User | None], None]
    until: float


class LimitedAuthenticator:
    """Limits the rate and the concurrency of another authenticator.

    Waiting logins are checked first from addresses with the fewest wrong passcodes. An unknown
    client that does not guess is therefore let in soon, however many others guess. Logins from
    addresses with wrong passcodes are checked one at a time, for at most a quarter of the time,
    since a check uses a processor that others could use. The same applies to all unknown clients
    while most of them fail at the first attempt, as in an attack from thousands of addresses. After
    a restart, when many reconnect, most are right.
    """

    def __init__(
        self, inner: Decider, login_limiter: LoginLimiter, clock: Clock, *, login_timeout_s: float
    ) -> None:
        """Ask ``inner``; no login waits longer than ``login_timeout_s`` seconds."""
        self._inner = inner
        self.login_limiter = login_limiter
        self._clock = clock
        self._login_timeout_s = login_timeout_s
        self._held = 0
        self._open = 0
        #: Waiting logins, by address.
        self._waiting: dict[bytes, deque[_Login]] = {}
        self._waiting_count = 0
        #: Addresses with a login that may be next, by number of wrong passcodes; the level of each
        #: address follows.
        self._lines: tuple[dict[bytes, None], ...] = tuple({} for _ in range(_LINES))
        self._line_of: dict[bytes, dict[bytes, None]] = {}
        self._is_going_on = False
        #: True if the next check is scheduled in a separate cycle.
        self._is_later = False
        #: True while a guess is being checked, and during the pause after it.
        self._is_guess_last = False
        #: Recent share of unknown clients that failed at the first attempt.
        self._wrong_share = 0.0
        #: Times until which no other line is logged, by kind of refusal and address.
        self._logged_until: OrderedDict[tuple[bool, bytes], float] = OrderedDict()
        self._reloads = 0

    def authenticate(self, credentials: Credentials, answer: Callable[[User | None], None]) -> None:
        """Find the user; see :class:`~stompkit.server.interfaces.Authenticator`."""
        login, passcode = credentials.login or "", credentials.passcode or ""
        if not (login or passcode):
            # Nothing to guess.
            self._inner.decide(credentials, lambda decided: answer(decided.user))
            return
        now = self._clock.seconds()
        self._notice_reloads(now)
        attempt = self.login_limiter.attempt(credentials.peer, login, passcode)
        entry = _Login(attempt, credentials, answer, now + self._login_timeout_s)
        verdict = self.login_limiter.judge(attempt, now)
        is_free = self._open < _MOST_OPEN or self.login_limiter.is_friend(attempt)
        has_to_rest = self._is_guess_last and self._is_guess(
            self.login_limiter.repute(attempt, now)
        )
        if verdict is Verdict.CHECK and is_free and not has_to_rest:
            self._check(entry)
        elif verdict is not Verdict.REFUSE and self._waiting_count < _MOST_WAITING:
            self._wait(entry, now)
        else:
            self._refuse(entry, now)

    def _notice_reloads(self, now: float) -> None:
        """Check passcodes again that may have become right, such as that of a new user."""
        if isinstance(self._inner, ReloadedSource):
            reloads = self._inner.reloads()
            if reloads != self._reloads:
                self._reloads = reloads
                self.login_limiter.recheck(now)

    def _check(self, entry: _Login) -> None:
        began = self._clock.seconds()
        repute = self.login_limiter.repute(entry.attempt, began)
        is_guess = self._is_guess(repute)
        self._is_guess_last |= is_guess
        self.login_limiter.begin(entry.attempt)
        self._open += 1
        is_over = False

        def decided(decision: Decided) -> None:
            nonlocal is_over
            is_over = True
            self._open -= 1
            if decision.user is not None:
                outcome = Outcome.RIGHT
            else:
                outcome = Outcome.WRONG if decision.is_certain else Outcome.UNDECIDED
            now = self._clock.seconds()
            self.login_limiter.end(entry.attempt, outcome, now)
            if repute is Repute.UNKNOWN and outcome is not Outcome.UNDECIDED:
                self._wrong_share += ((outcome is Outcome.WRONG) - self._wrong_share) / _LATELY
            if is_guess:
                self._rest(now - began)
            try:
                entry.answer(decision.user)
            finally:
                self._line_up(entry.attempt.address, self._clock.seconds())
                self._go_on()

        try:
            self._inner.decide(entry.credentials, decided)
        except Exception:
            if is_over:
                raise
            login_events.login_error(failure=current_failure())
            decided(Decided(None, is_certain=False))

    def _is_guess(self, repute: Repute) -> bool:
        """Return True if a login is treated as a guess, whose check has to wait for others."""
        if repute is Repute.UNKNOWN:
            return self._wrong_share > _GUESSED
        return repute is Repute.WRONG

    def _rest(self, took_s: float) -> None:
        """Delay the next guess, unless the check took no time."""
        # The clock may have been set back meanwhile.
        rest_s = min(_REST * max(0.0, took_s), _MOST_REST_S)
        if rest_s:
            self._clock.callLater(rest_s, self._end_rest)
        else:
            self._is_guess_last = False

    def _end_rest(self) -> None:
        self._is_guess_last = False
        self._go_on()

    # Waiting.

    def _wait(self, entry: _Login, now: float) -> None:
        address = entry.attempt.address
        self._waiting.setdefault(address, deque()).append(entry)
        self._waiting_count += 1
        self._line_up(address, now)

    def _line_up(self, address: bytes, now: float) -> None:
        """Enqueue the first waiting login of an address, if any, by priority."""
        if address in self._waiting and address not in self._line_of:
            attempt = self._waiting[address][0].attempt
            number = int(self.login_limiter.standing(attempt, now))
            if self.login_limiter.repute(attempt, now) is Repute.WRONG:
                number += 1
            line = self._lines[min(number, _LINES - 1)]
            line[address] = None
            self._line_of[address] = line

    def _go_on(self) -> None:
        """Check waiting logins, as far as possible now."""
        if self._is_going_on:
            # Some are answered immediately, which calls this from the loop below.
            return
        self._is_going_on = True
        refused = 0
        try:
            while line := next(filter(None, self._lines), None):
                if refused == _MOST_REFUSED:
                    self._go_on_later()
                    break
                address = next(iter(line))
                waiting = self._waiting[address]
                entry, now = waiting[0], self._clock.seconds()
                verdict = self.login_limiter.judge(entry.attempt, now)
                if now >= entry.until:
                    # Its connection has ended: nobody waits for the answer.
                    verdict = Verdict.REFUSE
                repute = self.login_limiter.repute(entry.attempt, now)
                has_to_rest = self._is_guess_last and self._is_guess(repute)
                is_misplaced = has_to_rest and repute is Repute.WRONG and line is self._lines[0]
                if verdict is Verdict.CHECK and not is_misplaced:
                    if has_to_rest or self._open >= _MOST_OPEN:
                        break
                del line[address], self._line_of[address]
                if verdict is Verdict.WAIT:
                    # Another login from the address is being checked; its end enqueues this one
                    # again.
                    continue
                if verdict is Verdict.CHECK and is_misplaced:
                    # It had no wrong passcode yet when it was enqueued.
                    self._line_up(address, now)
                    continue
                waiting.popleft()
                self._waiting_count -= 1
                if not waiting:
                    del self._waiting[address]
                if verdict is Verdict.CHECK:
                    self._check(entry)
                else:
                    self._refuse(entry, now)
                    refused += 1
                self._line_up(address, now)
        finally:
            self._is_going_on = False

    def _go_on_later(self) -> None:
        if not self._is_later:
            self._is_later = True
            self._clock.callLater(0.0, self._go_on_now)

    def _go_on_now(self) -> None:
        self._is_later = False
        self._go_on()

    # Refusing.

    def _refuse(self, entry: _Login, now: float) -> None:
        """Refuse like a wrong passcode, but with a delay, so that retries are slow."""
        self.login_limiter.refused()
        wait_s = self.login_limiter.wait_s(entry.attempt, now)
        self._log_refusal(entry, wait_s, now)
        # Within its login timeout, or it would get another error.
        delay_s = min(wait_s, entry.until - now - self._login_timeout_s / 2)
        if delay_s <= 0 or self._held >= _MOST_HELD:
            entry.answer(None)
            return
        self._held += 1
        self._clock.callLater(delay_s, lambda: self._release(entry.answer))

    def _release(self, answer: Callable[[User | None], None]) -> None:
        self._held -= 1
        answer(None)

    def _log_refusal(self, entry: _Login, wait_s: float, now: float) -> None:
        """Log once for each period in which an address is refused."""
        repetition_s = self.login_limiter.repetition_s(entry.attempt, now)
        key = repetition_s > 0, entry.attempt.address
        if self._logged_until.get(key, 0.0) > now:
            return
        self._logged_until[key] = now + max(wait_s, self._login_timeout_s)
        self._logged_until.move_to_end(key)
        if len(self._logged_until) > _MOST_LOGGED:
            self._logged_until.popitem(last=False)
        peer = entry.credentials.peer or "unix"
        if repetition_s > 0:
            login_events.login_repeated(peer=peer, seconds=ceil(repetition_s))
        else:
            login_events.logins_limited(peer=peer, seconds=round(wait_s))
