"""Capabilities of a broker: probed on the broker itself, not looked up by its name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from stompkit.frames import VERSIONS
from stompkit.testing.capabilities import extras as extras
from stompkit.testing.capabilities import probes as probes
from stompkit.testing.capabilities.control import CONTROL, can_be_launched_with
from stompkit.testing.capabilities.probe_context import Access, Finding, ProbeContext
from stompkit.testing.client import ClientFailureError
from stompkit.testing.launching.description import BrokerDescription

__all__ = ["Capabilities"]

_PROBES: Final[dict[str, Callable[[ProbeContext], Finding]]] = {
    **{version: partial(probes.version, number=version) for version in VERSIONS},
    "receipt": probes.receipt,
    "heart-beat": probes.heart_beat,
    "ack": probes.ack,
    "client-individual": probes.client_individual,
    "cumulative-ack": probes.cumulative_ack,
    "nack": probes.nack,
    "nack-requeue": probes.nack_requeue,
    "redelivered": probes.redelivered,
    "transactions": probes.transactions,
    "ack-in-transaction": probes.ack_in_transaction,
    "topic": extras.topic,
    "wildcard": extras.wildcard,
    "durable": extras.durable,
    "selector": extras.selector,
    "browser": extras.browser,
    "temporary": extras.temporary,
    "expiry": extras.expiry,
    "delay": extras.delay,
    "priority": extras.priority,
}


class Capabilities:
    """Capabilities of one broker, including the operations that tests can perform on it.

    ``"nack" in capabilities`` probes the broker for that capability only, and only the first time.
    A probe uses its own connections and destinations. It takes at most a second or two if the
    broker lacks the capability. Frames of probes are not recorded.
    """

    names: Final = (*_PROBES, *CONTROL)
    """All names, in the order of :meth:`as_dict`:

    - ``1.0``, ``1.1``, ``1.2``: versions;
    - ``receipt``, ``heart-beat`` (the broker's);
    - ``ack``: in client mode, unacknowledged messages are redelivered after the connection is
      lost; ``redelivered``: with the header ``redelivered:true``;
    - ``client-individual``; ``cumulative-ack``: in client mode ACK includes earlier messages;
    - ``nack``: NACK is not answered by ERROR; ``nack-requeue``: and the message is redelivered;
    - ``transactions``: of SEND; ``ack-in-transaction``: of ACK;
    - ``topic``; ``wildcard``: ``*`` matches one level of a topic; ``durable``: topic subscriptions;
    - ``selector``, ``browser``, ``temporary`` (queues for replies), ``expiry``, ``delay``,
      ``priority`` (of messages);
    - ``restart``, ``kill``, ``pause``, ``disk-full``: operations of tests on the broker;
      ``persistence``: persistent messages survive a restart; ``reset``: of all the broker's state;
      ``clock``: tests can move the broker's clock;
    - ``frames``: they are recorded; ``quirks``: the broker was launched with some.
    """

    def __init__(self, broker: BrokerDescription) -> None:
        """Start with no capability probed."""
        self._broker = broker
        self._findings: dict[str, Finding] = {}
        self._access = Access(
            # Connect directly, not through the proxy: frames of probes are not recorded.
            broker.server_address,
            login=broker.login,
            passcode=broker.passcode,
            vhost=broker.vhost,
            queue_template=broker.queue_template,
            topic_template=broker.topic_template,
        )

    def __contains__(self, name: object) -> bool:
        """Return True if the broker has the capability; raise the errors of :meth:`why`."""
        return self._finding(name).has

    def why(self, name: str) -> str:
        """Return the reason for the finding, as one sentence without a full stop.

        Raises ValueError for an unknown name, and BrokerError if the broker cannot be probed.
        """
        return self._finding(name).why

    def is_at_launch(self, name: str) -> bool:
        """Return True if another broker of this kind can be launched with this capability."""
        return can_be_launched_with(name, self._broker)

    def as_dict(self) -> dict[str, bool]:
        """Probe all capabilities, which takes seconds; raises BrokerError as :meth:`why`."""
        return {name: name in self for name in self.names}

    def __repr__(self) -> str:
        """Return the capabilities known so far."""
        known = ", ".join(
            name if finding.has else f"no {name}" for name, finding in self._findings.items()
        )
        return f"<Capabilities of {self._broker.name}: {known or 'nothing asked yet'}>"

    def _finding(self, name: object) -> Finding:
        """Return the finding; probe the broker if there is none yet."""
        if not isinstance(name, str) or name not in self.names:
            raise ValueError(
                f"no capability is called {name!r}; there are: {', '.join(self.names)}"
            )
        if name in CONTROL:
            # Not cached: the check is cheap, and a stopped broker has fewer capabilities.
            return CONTROL[name](self._broker)
        if name not in self._findings:
            self._findings[name] = self._probe(_PROBES[name])
        return self._findings[name]

    def _probe(self, probe: Callable[[ProbeContext], Finding]) -> Finding:
        """Run one probe."""
        with ProbeContext(self._access) as context:
            try:
                return probe(context)
            except ClientFailureError as failure:
                finding = Finding(False, failure.reason)
        # The failure is a finding only if the broker is reachable.
        self._access.check()
        return finding
