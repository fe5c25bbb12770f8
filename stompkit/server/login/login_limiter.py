"""How often passcodes may be wrong; no I/O, and time is an argument.

A wrong passcode is counted for the address that it comes from, for its user, and for both
together; each count goes down by one every so often. While a count is full what would add to it is
refused without a look at the passcode, so that nothing is learnt from the answer. Three things
keep that from locking out who is in the right:

* A user who has logged in from an address before is no stranger there, and does not go by the
  count of the address.
* A client that repeats the same wrong passcode guesses nothing, and is counted once.
* The count of a user, which anybody can fill, refuses nobody by itself: it only leaves strangers
  one try for each address.

Only so many passcodes are looked at at a time as could be wrong without a count being too high;
others wait for these.
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

#: Seconds in which a wrong passcode that is repeated is not looked at again.
_AGAIN_S: Final = 5.0
#: Seconds between the tries of a stranger for a user whose count is full.
_STRANGER_S: Final = 3600.0
#: Of numbers that should be whole.
_EPSILON: Final = 1e-6


class Verdict(Enum):
    """What is to be done with a login."""

    CHECK = "check"
    WAIT = "wait"
    REFUSE = "refuse"


class Outcome(Enum):
    """What came of a login."""

    RIGHT = "right"
    WRONG = "wrong"
    UNDECIDED = "undecided"
    """What decides could not: that is nobody's guess."""
    THROTTLED = "throttled"


class Repute(Enum):
    """What is known of where a login comes from."""

    FRIEND = "friend"
    """The user has logged in from there before; or nothing is counted at all."""
    STRANGER = "stranger"
    WRONG = "wrong"
    """A stranger, and a wrong passcode from there is not forgiven yet."""


class Attempt(NamedTuple):
    """One login: digests of what it is counted under, which show nothing of a passcode."""

    address: bytes
    user: bytes
    pair: bytes
    guess: bytes
    is_shared: bool
    """Whether the address is that of many."""


class _Counts:
    """Wrong passcodes that are not forgiven yet; of too many keys the oldest are forgotten."""

    def __init__(self, most: int, forgiven_after_s: float) -> None:
        self._most = most
        self._forgiven_after_s = forgiven_after_s
        #: How many there were at what time; the latest at the end.
        self._known: OrderedDict[bytes, tuple[float, float]] = OrderedDict()

    def of(self, key: bytes, now: float) -> float:
        """How many there are now."""
        found = self._known.get(key)
        if found is None:
            return 0.0
        count, at = found
        if now < at:
            # The clock was set back: it goes on from there.
            self._known[key] = count, now
            return count
        return max(0.0, count - (now - at) / self._forgiven_after_s)

    def since(self, key: bytes, now: float) -> float:
        """Seconds since the last one; infinite where there is none."""
        found = self._known.get(key)
        return float("inf") if found is None else max(0.0, now - found[1])

    def add(self, key: bytes, now: float) -> None:
        """Count one more."""
        self._known[key] = self.of(key, now) + 1, now
        self._known.move_to_end(key)
        if len(self._known) > self._most:
            self._known.popitem(last=False)

    def forget(self, key: bytes) -> None:
        """Begin anew."""
        self._known.pop(key, None)


class LoginLimiter:
    """Says which logins are looked at, and is told what came of them."""

    def __init__(self, settings: ThrottleSettings) -> None:
        """Begin with nothing counted; ValueError for a network that is none."""
        self._settings = settings
        self._exempt = networks(settings.exempt)
        self._secret = secrets.token_bytes(32)
        most, after_s = settings.max_remembered, settings.forgiven_after_s
        self._addresses = _Counts(most, after_s)
        self._users = _Counts(most, after_s)
        self._pairs = _Counts(most, after_s)
        #: Users, each at an address from which it has logged in; the latest at the end.
        self._friends: OrderedDict[bytes, None] = OrderedDict()
        #: Guesses: when they were counted, and when looked at. The latest counted at the end.
        self._wrong: OrderedDict[bytes, tuple[float, float]] = OrderedDict()
        #: Logins that are being looked at, by address and by pair.
        self._open: Counter[bytes] = Counter()
        #: What came of all logins so far.
        self.outcomes: Counter[Outcome] = Counter()

    def attempt(self, peer: str, user: str, passcode: str) -> Attempt:
        """Make what stands for a login."""
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
            # The socket of a file system: whoever is at the other end has no address.
            return True
        return any(found in network for network in self._exempt)

    def judge(self, attempt: Attempt, now: float) -> Verdict:
        """What is to be done with a login; changes nothing."""
        if not self._settings.enabled:
            return Verdict.CHECK
        repeated = self._repeated(attempt, now)
        if repeated is not None and now - repeated < _AGAIN_S:
            return Verdict.REFUSE
        if repeated is None and self.wait_s(attempt, now) > 0:
            return Verdict.REFUSE
        for counts, key, most in self._goes_by(attempt, now):
            count = 0.0 if repeated is not None else counts.of(key, now)
            if count + self._open[key] > most - 1 + _EPSILON:
                return Verdict.WAIT
        return Verdict.CHECK

    def is_friend(self, attempt: Attempt) -> bool:
        """Whether the user has logged in from there before."""
        return attempt.pair in self._friends

    def standing(self, attempt: Attempt, now: float) -> float:
        """How many were wrong, or may be, where it comes from; 0 for the best."""
        if self.is_friend(attempt):
            return 0.0
        counts, key = self._origin(attempt)
        return counts.of(key, now) + self._open[key]

    def repute(self, attempt: Attempt, now: float) -> Repute:
        """What is known of where it comes from."""
        if not self._settings.enabled or self.is_friend(attempt):
            return Repute.FRIEND
        counts, key = self._origin(attempt)
        return Repute.WRONG if counts.of(key, now) > _EPSILON else Repute.STRANGER

    def _origin(self, attempt: Attempt) -> tuple[_Counts, bytes]:
        """What a stranger is counted under."""
        if attempt.is_shared:
            return self._pairs, attempt.pair
        return self._addresses, attempt.address

    def wait_s(self, attempt: Attempt, now: float) -> float:
        """Seconds until a login that no other is in the way of is looked at."""
        wait_s = 0.0
        for counts, key, most in self._goes_by(attempt, now):
            over = counts.of(key, now) - (most - 1)
            if over > _EPSILON:
                wait_s = max(wait_s, over * self._settings.forgiven_after_s)
        if self._is_hunted(attempt, now):
            wait_s = max(wait_s, _STRANGER_S - self._pairs.since(attempt.pair, now))
        repeated = self._repeated(attempt, now)
        if repeated is not None:
            wait_s = max(wait_s, _AGAIN_S - (now - repeated))
        return wait_s

    def _goes_by(self, attempt: Attempt, now: float) -> list[tuple[_Counts, bytes, int]]:
        """The counts that a login would add to, and how far they may go."""
        most = self._settings.wrong_passcodes
        goes_by = [(self._pairs, attempt.pair, 1 if self._is_hunted(attempt, now) else most)]
        if not (attempt.is_shared or self.is_friend(attempt)):
            goes_by.append((self._addresses, attempt.address, most))
        return goes_by

    def _is_hunted(self, attempt: Attempt, now: float) -> bool:
        """Whether it is for a user whom many guess at, by somebody who has not been that user."""
        if self.is_friend(attempt):
            return False
        most = self._settings.wrong_passcodes_of_user
        return self._users.of(attempt.user, now) > most - 1 + _EPSILON

    def _repeated(self, attempt: Attempt, now: float) -> float | None:
        """When the same was looked at before, if it was wrong and has been counted."""
        counted, looked_at = self._wrong.get(attempt.guess, (0.0, 0.0))
        if attempt.guess not in self._wrong or not (
            0 <= now - counted < self._settings.forgiven_after_s
        ):
            return None
        return looked_at

    def begin(self, attempt: Attempt) -> None:
        """Note that a login is being looked at; :meth:`end` has to follow."""
        self._open[attempt.address] += 1
        self._open[attempt.pair] += 1

    def end(self, attempt: Attempt, outcome: Outcome, now: float) -> None:
        """Note what came of it."""
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
        """Note that a login was refused without a look at it."""
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
