"""Where the target is, and how to talk to it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Self

from stompkit.testing import Place, format_address

__all__ = ["Address"]


@dataclass(frozen=True, slots=True)
class Address:
    """Where the target is, how to log in, what not to ask of it, and how patient to be."""

    host: str
    port: int
    login: str | None = None
    passcode: str | None = field(default=None, repr=False)
    #: Virtual host for CONNECT's ``host`` header; the host's name if not given.
    vhost: str | None = None
    #: Hosts and ports of the other nodes, where the target has several.
    others: tuple[tuple[str, int], ...] = ()
    #: Where the nodes are for those who don't go through a tunnel; empty where nobody does.
    places: tuple[Place, ...] = ()
    #: How the target names queues and topics; ``{}`` stands for a plain word.
    queue_template: str = "/queue/{}"
    topic_template: str = "/topic/{}"
    #: Whether the target knows ACK and NACK, and whether it answers receipts.
    has_ack: bool = True
    has_receipts: bool = True
    #: Seconds to wait for an answer.
    timeout_s: float = 3.0
    #: Seconds to wait before saying that nothing came.
    quiet_s: float = 0.5
    #: Seconds that one case may take.
    case_timeout_s: float = 60.0
    #: What the sessions of the fuzzer are made of, and how many there are.
    seed: int = 0
    fuzz_sessions: int = 300

    def __str__(self) -> str:
        """HOST:PORT or a URL, as the command line takes it; of each node, with commas."""
        if self.places:
            return ",".join(str(each) for each in self.places)
        return ",".join(format_address(*each) for each in ((self.host, self.port), *self.others))

    def node(self, number: int) -> Self:
        """The address of one node, 0 the first; raises ``IndexError`` where there is none."""
        host, port = ((self.host, self.port), *self.others)[number]
        places = self.places[number : number + 1]
        return replace(self, host=host, port=port, others=(), places=places)

    @property
    def real(self) -> tuple[str, int]:
        """Host and port of the first node itself, whatever leads there."""
        return (self.places[0].host, self.places[0].port) if self.places else (self.host, self.port)

    @property
    def nodes(self) -> int:
        """How many there are."""
        return 1 + len(self.others)

    @property
    def recovery_s(self) -> float:
        """Seconds that the target has to answer CONNECT again after a case, before it is lost."""
        return 3 * self.timeout_s

    @property
    def secret(self) -> str | None:
        """What no report may show: the passcode, unless the login gives it away."""
        return self.passcode if self.passcode != self.login else None
