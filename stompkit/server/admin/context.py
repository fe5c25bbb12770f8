"""Shared context of all requests: the broker, its settings and its statistics."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from stompkit.server.admin.arrivals import Arrivals
from stompkit.server.admin.errors import AdminError, refuse
from stompkit.server.admin.statistics import Statistics
from stompkit.server.domain.broker import Broker
from stompkit.server.domain.destinations import Destination
from stompkit.server.domain.errors import RefusedError
from stompkit.server.domain.hosts.virtual_host import VirtualHost
from stompkit.server.domain.queues.queue import Queue
from stompkit.server.domain.queues.upkeep import Act, Outcome, Selection, Sweep
from stompkit.server.domain.session.base import BrokerSession, sessions_of
from stompkit.server.interfaces import StoreError
from stompkit.server.listen.certificate_dates import CertificateDates
from stompkit.server.login.limited_authenticator import LimitedAuthenticator
from stompkit.server.login.login_limiter import LoginLimiter
from stompkit.server.login.login_limiter import Outcome as LoginOutcome
from stompkit.server.process.activation import Activation, AlwaysActive
from stompkit.server.process.assembly import Access
from stompkit.server.settings.process import Settings

if TYPE_CHECKING:
    from stompkit.server.lease.keeper import LeaseStatus

__all__ = ["Context"]

_T = TypeVar("_T")


class Context:
    """One broker, with look-ups of its objects by name."""

    def __init__(
        self,
        broker: Broker,
        settings: Settings,
        statistics: Statistics,
        trouble: Callable[[], str | None],
        reactor: IReactorTime,
        access: Callable[[], Access] | None = None,
        activation: Activation | None = None,
    ) -> None:
        """Keep the broker, its settings and its statistics.

        ``access`` returns the access control that is in force; by default, there is none.
        ``activation`` competes with other brokers of the store, if there can be any.
        """
        self.broker = broker
        self.settings = settings
        self.statistics = statistics
        self.trouble = trouble
        self.reactor = reactor
        self.access = access or (lambda: Access(None, None))
        self.activation = activation or AlwaysActive()
        self.arrivals = Arrivals()
        self.certificates = CertificateDates(settings)
        statistics.watchers.append(self.sample)
        self.started = reactor.seconds()
        #: The same as time of day.
        self.started_at = broker.scheduler.date_of(self.started)
        #: Limits the rate of wrong tokens.
        self.login_limiter = LoginLimiter(settings.auth.throttle)
        #: Queues that are being purged or moved.
        self.busy: set[Queue] = set()
        #: Results of the operations in progress.
        self._unfinished: dict[Deferred[Any], None] = {}
        broker.scheduler.when_discarded.append(self.give_up)

    # Operations in progress.

    def until_given_up(self, work: Deferred[_T]) -> Deferred[_T]:
        """Return the result of an operation, or the error of :meth:`give_up` before its end."""
        answer: Deferred[_T] = Deferred()
        self._unfinished[answer] = None

        def done(result: Any) -> None:
            if answer in self._unfinished:
                del self._unfinished[answer]
                answer.callback(result)

        work.addBoth(done)
        return answer

    def give_up(self, reason: RefusedError) -> bool:
        """End all operations with an error, since nothing will; return True if there were any."""
        given_up, self._unfinished = self._unfinished, {}
        # The queues that they worked on are gone.
        self.busy.clear()
        text = f"{reason.message}; the operation has not ended, and can have taken effect in part"
        for answer in given_up:
            answer.errback(AdminError(503, reason.code, text))
        return bool(given_up)

    def stored(
        self, work: Callable[[], object], answer: Callable[[], _T], more: str = ""
    ) -> Deferred[_T]:
        """Do some work, and answer when the store has it; it may raise RefusedError.

        If the store fails, the error ends with *more*.
        """
        broker = self.broker
        done: Deferred[_T] = Deferred()

        def stored(error: StoreError | None) -> None:
            if error is not None:
                text = f"the store has failed: {error}{more}"
                done.errback(AdminError(503, "store-failed", text))
                return
            done.callback(answer())

        broker.scheduler.commit_queue.carry_out(work, stored)
        broker.flush()
        return done

    def sweep(
        self,
        queue: Queue,
        selection: Selection,
        act: Act,
        answer: Callable[[Outcome], _T],
        target: Queue | None = None,
    ) -> Deferred[_T]:
        """Start a sweep over a queue: one for each queue, and a limited number in total."""
        busy = self.busy
        concerned = {queue} if target is None else {queue, target}
        if concerned & busy:
            refuse(409, "busy", "its messages are being moved or dropped: try again later")
        if len(busy) + len(concerned) > 2 * self.settings.admin.max_operations:
            refuse(429, "busy", "too many queues are being worked on: try again later")
        busy |= concerned
        if target is not None:
            target.holds += 1
        done: Deferred[_T] = Deferred()

        def report(outcome: Outcome) -> None:
            busy.difference_update(concerned)
            if target is not None:
                target.holds -= 1
                self.broker.touch(target)
            if outcome.failure is not None:
                text = f"the store has failed after {outcome.done} messages: {outcome.failure}"
                done.errback(AdminError(503, "store-failed", text))
                return
            try:
                done.callback(answer(outcome))
            except AdminError as problem:
                done.errback(problem)

        Sweep(queue, selection, act, report).start()
        return done

    # Objects by name.

    def sample(self) -> None:
        """Record the time of the newest message: once a second, and before times are looked up."""
        self.arrivals.sample(self.broker.last_message, self.broker.scheduler.time_of_day())

    def logins(self) -> dict[str, dict[LoginOutcome, int]]:
        """Return the outcomes of logins, for clients and for the admin interface."""
        found = {"admin": dict(self.login_limiter.outcomes)}
        authenticator = self.broker.authenticator
        if isinstance(authenticator, LimitedAuthenticator):
            found["client"] = dict(authenticator.login_limiter.outcomes)
        return found

    def lease(self) -> LeaseStatus:
        """Return the state of the lease; raises :class:`AdminError` if there is none."""
        found = self.activation.lease
        if found is None:
            raise AdminError(
                409,
                "no-lease",
                'this broker has no lease: [high_availability] has no "lease". A standby of a'
                " shared directory takes over when the active broker is stopped",
            )
        return found

    def host(self, name: str) -> VirtualHost:
        """Return the virtual host with a name; raises :class:`AdminError` if unknown.

        Without a name it is the first one, as for clients that send none.
        """
        hosts = self.broker.hosts
        host = hosts.get(name) if name else next(iter(hosts.values()))
        if host is None:
            raise AdminError(404, "no-such-host", f"there is no virtual host {name[:100]!a}")
        return host

    def destination(self, host: str, name: str) -> Destination:
        """Return the destination or durable subscription with a name; raises AdminError.

        A broker that is not active has none, and does not know those of the active one.
        """
        place = self.host(host)
        found = place.destinations.get(name) or place.durable_named(name)
        if found is None:
            refusal = self.broker.refusal
            if refusal is not None:
                raise AdminError(503, refusal.code, refusal.message)
            raise self.missing("no-such-destination", f"there is no destination {name[:100]!a}")
        return found

    def missing(self, code: str, text: str) -> AdminError:
        """Return the error for a name that the broker does not know.

        While the store fails, the broker repeats changes that the store does not have yet: what an
        operation has deleted can still be there.
        """
        failure = self.broker.scheduler.commit_queue.failure
        if failure is None:
            return AdminError(404, code, text)
        return AdminError(
            503,
            "store-failed",
            f"{text}, but the store, which has failed, can still have it: {failure}",
        )

    def queue(self, host: str, name: str) -> Queue:
        """Return a destination that keeps messages; raises :class:`AdminError` for any other."""
        found = self.destination(host, name)
        if not isinstance(found, Queue):
            raise AdminError(
                409, "not-a-queue", f"{name[:100]!a} is no queue: it keeps no messages"
            )
        return found

    def connection(self, number: str) -> BrokerSession:
        """Return the connection with an identifier; raises :class:`AdminError` if unknown."""
        for each in sessions_of(self.broker):
            if each.id == number:
                return each
        raise AdminError(404, "no-such-connection", f"there is no connection {number[:100]!a}")
