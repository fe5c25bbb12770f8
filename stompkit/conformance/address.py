"""The address of the target, and the parameters of connections to it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final, Self

from stompkit.testing import Place, format_address

__all__ = ["Address"]

#: Minimum duration of a case in seconds, and its duration as a number of timeouts.
_CASE_S: Final = 60.0
_CASE_ANSWERS: Final = 20


@dataclass(frozen=True, slots=True)
class Address:
    """Address, credentials, limits and timeouts of the target."""

    host: str
    port: int
    login: str | None = None
    passcode: str | None = field(default=None, repr=False)
    #: Virtual host for CONNECT's ``host`` header; by default the host's name.
    vhost: str | None = None
    #: Hosts and ports of the other nodes, if the target has several.
    others: tuple[tuple[str, int], ...] = ()
    #: Addresses of the nodes behind tunnels; empty without tunnels.
    places: tuple[Place, ...] = ()
    #: Templates of queue and topic destinations; ``{}`` is replaced by a plain word.
    queue_template: str = "/queue/{}"
    topic_template: str = "/topic/{}"
    #: True if the target supports ACK and NACK, and True if it answers receipts.
    has_ack: bool = True
    has_receipts: bool = True
    #: Timeout in seconds for an answer.
    timeout_s: float = 3.0
    #: Time in seconds without data after which nothing more is expected.
    quiet_s: float = 0.5
    #: Maximum duration of one case in seconds; by default a minute, and longer for long timeouts.
    case_timeout_s: float | None = None
    #: Seed and number of the sessions of the fuzzer.
    seed: int = 0
    fuzz_sessions: int = 300

    def __str__(self) -> str:
        """Return HOST:PORT or a URL, as the command line takes it; comma-separated by node."""
        if self.places:
            return ",".join(str(each) for each in self.places)
        return ",".join(format_address(*each) for each in ((self.host, self.port), *self.others))

    def node(self, number: int) -> Self:
        """Return the address of one node, counted from 0; raises ``IndexError`` if absent."""
        host, port = ((self.host, self.port), *self.others)[number]
        places = self.places[number : number + 1]
        return replace(self, host=host, port=port, others=(), places=places)

    @property
    def real(self) -> tuple[str, int]:
        """Host and port of the first node itself, without tunnel."""
        return (self.places[0].host, self.places[0].port) if self.places else (self.host, self.port)

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return 1 + len(self.others)

    @property
    def case_s(self) -> float:
        """Maximum duration of one case in seconds."""
        if self.case_timeout_s is not None:
            return self.case_timeout_s
        return max(_CASE_S, _CASE_ANSWERS * self.timeout_s)

    @property
    def recovery_s(self) -> float:
        """Time in seconds for the target to answer CONNECT again after a case."""
        return 3 * self.timeout_s

    @property
    def secret(self) -> str | None:
        """The passcode, which no report may show, unless it equals the login."""
        return self.passcode if self.passcode != self.login else None
