"""Logins that go by a throttle: who waits, and who is refused after a while."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from twisted.logger import Logger

from stompkit.server.interfaces import Clock, Credentials, User
from stompkit.server.login.login_limiter import Attempt, LoginLimiter, Outcome, Repute, Verdict

__all__ = ["Decided", "Decider", "LimitedAuthenticator"]

_log: Final = Logger()

#: Refused logins that have not been told so yet; one more is told at once.
_MOST_HELD: Final = 1_000
#: Logins that wait for others from their addresses; one more is refused.
_MOST_WAITING: Final = 10_000
#: Logins that are looked at at a time, besides those of users who were there before.
_MOST_OPEN: Final = 20
#: Lines in which addresses wait: the first for those that were not wrong.
_LINES: Final = 10
#: After a look at a guess the next one has to wait: how many times as long as the look took, and
#: seconds that this is at most.
_REST: Final = 3
_MOST_REST_S: Final = 1.0
#: Strangers who had not been wrong: of about how many of the last ones it counts how many were, and
#: the share from which the next of them is taken for one who guesses.
_LATELY: Final = 16
_GUESSED: Final = 0.5
#: Logins that are refused in one turn, of those that have waited.
_MOST_REFUSED: Final = 20
#: Addresses of which the log has been told.
_MOST_TOLD: Final = 1_000


class Decided(NamedTuple):
    """What came of a login: the user, or ``None`` for one to be turned away."""

    user: User | None
    is_certain: bool = True
    """Whether it was found out: not, where what decides is out of order."""


class Decider(Protocol):
    """What finds out who a client is, and says whether it could."""

    def decide(self, credentials: Credentials, answer: Callable[[Decided], None]) -> None:
        """Call ``answer``, at once or later, from the broker's thread, once."""


class _Login(NamedTuple):
    """A login that waits."""

    attempt: Attempt
    credentials: Credentials
    answer: Callable[[User | None], None]
    until: float


class LimitedAuthenticator:
    """Asks another one, but not too often, and not about too many at a time.

    Where some have to wait, those are asked about first whose addresses have the fewest wrong
    passcodes: however many guess, a stranger who does not is soon let in. Those whose addresses
    have any are asked about one at a time, in a quarter of the time at most, since a look takes a
    processor that everybody else could have. So are all strangers, while most of those that come
    are wrong at once: thousands of addresses with a guess each. Where many come back, as after a
    restart, most are right.
    """

    def __init__(
        self, inner: Decider, throttle: LoginLimiter, clock: Clock, *, login_timeout_s: float
    ) -> None:
        """Ask ``inner``; nobody waits any more after ``login_timeout_s``."""
        self._inner = inner
        self.throttle = throttle
        self._clock = clock
        self._login_timeout_s = login_timeout_s
        self._held = 0
        self._open = 0
        #: Those that wait, by address.
        self._waiting: dict[bytes, deque[_Login]] = {}
        self._waiting_count = 0
        #: Addresses of which one may be next, by how many were wrong; and which line each is in.
        self._lines: tuple[dict[bytes, None], ...] = tuple({} for _ in range(_LINES))
        self._line_of: dict[bytes, dict[bytes, None]] = {}
        self._is_going_on = False
        #: Whether that is to be done in a turn of its own.
        self._is_later = False
        #: Whether a guess is being looked at, or that was a moment ago.
        self._is_guess_last = False
        #: The share of strangers that were wrong at once, lately.
        self._wrong_share = 0.0
        self._told: OrderedDict[bytes, float] = OrderedDict()

    def authenticate(self, credentials: Credentials, answer: Callable[[User | None], None]) -> None:
        """Find the user; see :class:`~stompkit.server.interfaces.Authenticator`."""
        login, passcode = credentials.login or "", credentials.passcode or ""
        if not (login or passcode):
            # Nothing is guessed.
            self._inner.decide(credentials, lambda decided: answer(decided.user))
            return
        now = self._clock.seconds()
        attempt = self.throttle.attempt(credentials.peer, login, passcode)
        entry = _Login(attempt, credentials, answer, now + self._login_timeout_s)
        verdict = self.throttle.judge(attempt, now)
        is_free = self._open < _MOST_OPEN or self.throttle.is_friend(attempt)
        has_to_rest = self._is_guess_last and self._is_guess(self.throttle.repute(attempt, now))
        if verdict is Verdict.CHECK and is_free and not has_to_rest:
            self._check(entry)
        elif verdict is not Verdict.REFUSE and self._waiting_count < _MOST_WAITING:
            self._wait(entry, now)
        else:
            self._refuse(entry, now)

    def _check(self, entry: _Login) -> None:
        began = self._clock.seconds()
        repute = self.throttle.repute(entry.attempt, began)
        is_guess = self._is_guess(repute)
        self._is_guess_last |= is_guess
        self.throttle.begin(entry.attempt)
        self._open += 1
        is_over = False

        def decided(said: Decided) -> None:
            nonlocal is_over
            is_over = True
            self._open -= 1
            if said.user is not None:
                outcome = Outcome.RIGHT
            else:
                outcome = Outcome.WRONG if said.is_certain else Outcome.UNDECIDED
            now = self._clock.seconds()
            self.throttle.end(entry.attempt, outcome, now)
            if repute is Repute.STRANGER and outcome is not Outcome.UNDECIDED:
                self._wrong_share += ((outcome is Outcome.WRONG) - self._wrong_share) / _LATELY
            if is_guess:
                self._rest(now - began)
            try:
                entry.answer(said.user)
            finally:
                self._line_up(entry.attempt.address, self._clock.seconds())
                self._go_on()

        try:
            self._inner.decide(entry.credentials, decided)
        except Exception:
            if is_over:
                raise
            _log.failure("while a login was looked at")
            decided(Decided(None, is_certain=False))

    def _is_guess(self, repute: Repute) -> bool:
        """Whether a login is taken for a guess, whose look has to wait for others."""
        if repute is Repute.STRANGER:
            return self._wrong_share > _GUESSED
        return repute is Repute.WRONG

    def _rest(self, took_s: float) -> None:
        """Have the next guess wait; not where a look takes no time."""
        # A clock may have been set back meanwhile.
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
        """Have the first who waits at an address, if anybody does, be one who may be next."""
        if address in self._waiting and address not in self._line_of:
            attempt = self._waiting[address][0].attempt
            number = int(self.throttle.standing(attempt, now))
            if self.throttle.repute(attempt, now) is Repute.WRONG:
                number += 1
            line = self._lines[min(number, _LINES - 1)]
            line[address] = None
            self._line_of[address] = line

    def _go_on(self) -> None:
        """Look at those who have waited, as far as that can be done now."""
        if self._is_going_on:
            # Some are answered at once, and this is called from the loop below.
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
                verdict = self.throttle.judge(entry.attempt, now)
                if now >= entry.until:
                    # Its connection has ended: there is nobody to be let in.
                    verdict = Verdict.REFUSE
                repute = self.throttle.repute(entry.attempt, now)
                has_to_rest = self._is_guess_last and self._is_guess(repute)
                is_misplaced = has_to_rest and repute is Repute.WRONG and line is self._lines[0]
                if verdict is Verdict.CHECK and not is_misplaced:
                    if has_to_rest or self._open >= _MOST_OPEN:
                        break
                del line[address], self._line_of[address]
                if verdict is Verdict.WAIT:
                    # For another one from there, whose end has it line up again.
                    continue
                if verdict is Verdict.CHECK and is_misplaced:
                    # It was not wrong yet when it was lined up.
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
        """Say no as to a wrong passcode, but late, so that trying again takes its time."""
        self.throttle.refused()
        wait_s = self.throttle.wait_s(entry.attempt, now)
        self._tell(entry, wait_s, now)
        # Within its time for the login, or it would be told something else.
        delay_s = min(wait_s, entry.until - now - self._login_timeout_s / 2)
        if delay_s <= 0 or self._held >= _MOST_HELD:
            entry.answer(None)
            return
        self._held += 1
        self._clock.callLater(delay_s, lambda: self._release(entry.answer))

    def _release(self, answer: Callable[[User | None], None]) -> None:
        self._held -= 1
        answer(None)

    def _tell(self, entry: _Login, wait_s: float, now: float) -> None:
        """Tell the log, once for each time that an address is refused."""
        address = entry.attempt.address
        if self._told.get(address, 0.0) > now:
            return
        self._told[address] = now + max(wait_s, self._login_timeout_s)
        self._told.move_to_end(address)
        if len(self._told) > _MOST_TOLD:
            self._told.popitem(last=False)
        _log.warn(
            "{peer} has been wrong too often: logins are refused without a look at their"
            " passcodes, for {seconds} seconds now",
            peer=entry.credentials.peer or "who came by a socket of the file system",
            seconds=round(wait_s),
        )
