"""Rate limits for wrong passcodes, without I/O; time is an argument.

A wrong passcode is counted for its address, for its user, and for both together; each count
decreases by one at a fixed interval. While a count is full, logins that would add to it are refused
without a check, so that the answer reveals nothing. Three rules keep legitimate users from being
locked out:

* A user who has logged in from an address before is known there, and is exempt from the count of
  the address.
* A client that repeats the same wrong passcode guesses nothing, and is counted once.
* The count of a user, which anybody can fill, refuses nobody by itself: it only limits unknown
  clients to one attempt for each address.

The number of concurrent checks is limited, so that no count can be exceeded if all of them fail;
other logins wait.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import Counter, OrderedDict
from enum import Enum
from ipaddress import ip_address
from typing import Final, NamedTuple

from stompkit.server.listen.endpoints import networks
from stompkit.server.login.addresses import counted_as
from stompkit.server.settings.login_limiter import ThrottleSettings

__all__ = ["Attempt", "LoginLimiter", "Outcome", "Repute", "Verdict"]

#: Time in seconds during which a repeated wrong passcode is not checked again.
_AGAIN_S: Final = 5.0
#: Interval in seconds between attempts of an unknown client for a user whose count is full.
_UNKNOWN_S: Final = 3600.0
#: Tolerance for rounding errors of counts.
_EPSILON: Final = 1e-6


class Verdict(Enum):
    """Decision on a login."""

    CHECK = "check"
    WAIT = "wait"
    REFUSE = "refuse"


class Outcome(Enum):
    """Outcome of a login."""

    RIGHT = "right"
    WRONG = "wrong"
    UNDECIDED = "undecided"
    """The check failed for technical reasons, and does not count as a guess."""
    THROTTLED = "throttled"


class Repute(Enum):
    """Reputation of a user at an address."""

    FRIEND = "friend"
    """The user has logged in from there before, or nothing is counted."""
    UNKNOWN = "unknown"
    WRONG = "wrong"
    """An unknown client, with a recent wrong passcode from there."""


class Attempt(NamedTuple):
    """One login: digests of the keys under which it is counted, which reveal no passcode."""

    address: bytes
    user: bytes
    pair: bytes
    guess: bytes
    is_shared: bool
    """True if the address is shared by many clients."""


class _Counts:
    """Counts of recent wrong passcodes; beyond the limit of keys the oldest are dropped."""

    def __init__(self, most: int, forgiven_after_s: float) -> None:
        self._most = most
        self._forgiven_after_s = forgiven_after_s
        #: Counts with the times at which they applied; the latest last.
        self._known: OrderedDict[bytes, tuple[float, float]] = OrderedDict()

    def of(self, key: bytes, now: float) -> float:
        """Return the current count."""
        found = self._known.get(key)
        if found is None:
            return 0.0
        count, at = found
        if now < at:
            # The clock was set back: continue from there.
            self._known[key] = count, now
            return count
        return max(0.0, count - (now - at) / self._forgiven_after_s)

    def since(self, key: bytes, now: float) -> float:
        """Return the seconds since the last wrong passcode; infinite if there is none."""
        found = self._known.get(key)
        return float("inf") if found is None else max(0.0, now - found[1])

    def add(self, key: bytes, now: float) -> None:
        """Add one."""
        self._known[key] = self.of(key, now) + 1, now
        self._known.move_to_end(key)
        if len(self._known) > self._most:
            self._known.popitem(last=False)

    def forget(self, key: bytes) -> None:
        """Reset the count."""
        self._known.pop(key, None)


class LoginLimiter:
    """Decides which logins are checked, and records their outcomes."""

    def __init__(self, settings: ThrottleSettings) -> None:
        """Start with no counts; raises ValueError for an invalid network."""
        self._settings = settings
        self._exempt = networks(settings.exempt)
        self._secret = secrets.token_bytes(32)
        most, after_s = settings.max_remembered, settings.forgiven_after_s
        self._addresses = _Counts(most, after_s)
        self._users = _Counts(most, after_s)
        self._pairs = _Counts(most, after_s)
        #: Users with the addresses from which they have logged in; the latest last.
        self._friends: OrderedDict[bytes, None] = OrderedDict()
        #: Guesses, with the times when they were counted and checked; the latest counted last.
        self._wrong: OrderedDict[bytes, tuple[float, float]] = OrderedDict()
        #: The time since which the same passcodes are accepted.
        self._accepted_since = float("-inf")
        #: Number of logins being checked, by address and by pair.
        self._open: Counter[bytes] = Counter()
        #: Number of logins by outcome.
        self.outcomes: Counter[Outcome] = Counter()

    def attempt(self, peer: str, user: str, passcode: str) -> Attempt:
        """Return the digests of a login."""
        address = counted_as(peer)
        return Attempt(
            address=self._digest(address),
            user=self._digest("", user),
            pair=self._digest(address, user),
            guess=self._digest(address, user, passcode),
            is_shared=self._is_shared(address),
        )

    def _digest(self, *parts: str) -> bytes:
        digest = hashlib.blake2b(key=self._secret, digest_size=16)
        for part in parts:
            data = part.encode("utf-8", "surrogatepass")
            digest.update(b"%d:%b" % (len(data), data))
        return digest.digest()

    def _is_shared(self, address: str) -> bool:
        try:
            found = ip_address(address.partition("/")[0])
        except ValueError:
            # A Unix socket: its peer has no address.
            return True
        return any(found in network for network in self._exempt)

    def judge(self, attempt: Attempt, now: float) -> Verdict:
        """Return the decision on a login, without changing anything."""
        if not self._settings.enabled:
            return Verdict.CHECK
        repeated = self._repeated(attempt, now)
        if self.repetition_s(attempt, now) > 0:
            return Verdict.REFUSE
        if repeated is None and self.wait_s(attempt, now) > 0:
            return Verdict.REFUSE
        for counts, key, most in self._goes_by(attempt, now):
            count = 0.0 if repeated is not None else counts.of(key, now)
            if count + self._open[key] > most - 1 + _EPSILON:
                return Verdict.WAIT
        return Verdict.CHECK

    def is_friend(self, attempt: Attempt) -> bool:
        """Return True if the user has logged in from there before."""
        return attempt.pair in self._friends

    def standing(self, attempt: Attempt, now: float) -> float:
        """Return the number of wrong passcodes and open checks of its origin; 0 is best."""
        if self.is_friend(attempt):
            return 0.0
        counts, key = self._origin(attempt)
        return counts.of(key, now) + self._open[key]

    def repute(self, attempt: Attempt, now: float) -> Repute:
        """Return the reputation of the user at the address."""
        if not self._settings.enabled or self.is_friend(attempt):
            return Repute.FRIEND
        counts, key = self._origin(attempt)
        return Repute.WRONG if counts.of(key, now) > _EPSILON else Repute.UNKNOWN

    def _origin(self, attempt: Attempt) -> tuple[_Counts, bytes]:
        """Return the counts and the key that apply to an unknown client."""
        if attempt.is_shared:
            return self._pairs, attempt.pair
        return self._addresses, attempt.address

    def wait_s(self, attempt: Attempt, now: float) -> float:
        """Return the seconds until a login is checked, if no other login is pending."""
        wait_s = 0.0
        for counts, key, most in self._goes_by(attempt, now):
            over = counts.of(key, now) - (most - 1)
            if over > _EPSILON:
                wait_s = max(wait_s, over * self._settings.forgiven_after_s)
        if self._is_hunted(attempt, now):
            wait_s = max(wait_s, _UNKNOWN_S - self._pairs.since(attempt.pair, now))
        return max(wait_s, self.repetition_s(attempt, now))

    def repetition_s(self, attempt: Attempt, now: float) -> float:
        """Return the seconds until a repeated wrong passcode is checked again; 0 for any other."""
        repeated = self._repeated(attempt, now)
        if repeated is None or repeated < self._accepted_since:
            return 0.0
        return max(0.0, _AGAIN_S - (now - repeated))

    def recheck(self, now: float) -> None:
        """Check each repeated wrong passcode once without a delay: it may be right by now."""
        self._accepted_since = now

    def _goes_by(self, attempt: Attempt, now: float) -> list[tuple[_Counts, bytes, int]]:
        """Return the counts that a login would add to, with their maximum values."""
        most = self._settings.wrong_passcodes
        goes_by = [(self._pairs, attempt.pair, 1 if self._is_hunted(attempt, now) else most)]
        if not (attempt.is_shared or self.is_friend(attempt)):
            goes_by.append((self._addresses, attempt.address, most))
        return goes_by

    def _is_hunted(self, attempt: Attempt, now: float) -> bool:
        """Return True if an unknown client logs in as a user with too many wrong passcodes."""
        if self.is_friend(attempt):
            return False
        most = self._settings.wrong_passcodes_of_user
        return self._users.of(attempt.user, now) > most - 1 + _EPSILON

    def _repeated(self, attempt: Attempt, now: float) -> float | None:
        """Return when the same wrong passcode was last checked, or None."""
        counted, looked_at = self._wrong.get(attempt.guess, (0.0, 0.0))
        if attempt.guess not in self._wrong or not (
            0 <= now - counted < self._settings.forgiven_after_s
        ):
            return None
        return looked_at

    def begin(self, attempt: Attempt) -> None:
        """Record the start of a check; :meth:`end` must follow."""
        self._open[attempt.address] += 1
        self._open[attempt.pair] += 1

    def end(self, attempt: Attempt, outcome: Outcome, now: float) -> None:
        """Record the outcome of a check."""
        self.outcomes[outcome] += 1
        for key in (attempt.address, attempt.pair):
            self._open[key] -= 1
            if not self._open[key]:
                del self._open[key]
        if outcome is Outcome.RIGHT:
            self._pairs.forget(attempt.pair)
            self._friends[attempt.pair] = None
            self._friends.move_to_end(attempt.pair)
            if len(self._friends) > self._settings.max_remembered:
                self._friends.popitem(last=False)
        elif outcome is Outcome.WRONG and self._settings.enabled:
            self._count(attempt, now)

    def refused(self) -> None:
        """Record a login refused without a check."""
        self.outcomes[Outcome.THROTTLED] += 1

    def _count(self, attempt: Attempt, now: float) -> None:
        if self._repeated(attempt, now) is not None:
            counted, _ = self._wrong[attempt.guess]
            self._wrong[attempt.guess] = counted, now
            return
        for counts, key, _ in self._goes_by(attempt, now):
            counts.add(key, now)
        self._users.add(attempt.user, now)
        self._wrong[attempt.guess] = now, now
        self._wrong.move_to_end(attempt.guess)
        if len(self._wrong) > self._settings.max_remembered:
            self._wrong.popitem(last=False)
