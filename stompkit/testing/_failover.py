"""Two brokers, for clients that fail over to the other one."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from stompkit.testing._obtaining import OwnBrokerNeededError, obtain, obtain_given
from stompkit.testing._settings import Settings
from stompkit.testing.launching.config import LaunchConfig
from stompkit.testing.launching.launch import RunningBroker, launch
from stompkit.testing.launching.processes.leftovers import shared_folder

__all__ = ["FailoverPair", "obtain_pair"]


class FailoverPair:
    """Two addresses for one client; a context manager that stops both brokers.

    By default these are two independent brokers, each with its own messages. If they share a store,
    at most one of them runs: the other address refuses connections until ``fail_over`` starts the
    broker behind it, which recovers all that its predecessor had stored.
    """

    brokers: tuple[RunningBroker, RunningBroker]
    """Both brokers, in the order in which a client should try them."""
    is_shared: bool
    """True if the brokers share a store."""

    def __init__(
        self,
        first: RunningBroker,
        second: RunningBroker,
        *,
        is_shared: bool = False,
        cleanup: ExitStack | None = None,
    ) -> None:
        """Take two brokers, of which the first runs; use ``stomp_failover`` to get a pair.

        ``cleanup`` is left by ``stop``.
        """
        self.brokers = first, second
        self.is_shared = is_shared
        self._cleanup = ExitStack() if cleanup is None else cleanup
        self._active = 0

    @classmethod
    def launch(cls, config: LaunchConfig, *, shared: bool = False) -> FailoverPair:
        """Launch two brokers on different ports; with ``shared`` on one store.

        Raises the errors of ``launch``.
        """
        config = replace(config, port=0)
        with ExitStack() as undo:
            if shared:
                config = replace(config, directory=undo.enter_context(shared_folder()))
            second = undo.enter_context(launch(config))
            if shared:
                second.cut_off()
            first = undo.enter_context(launch(config))
            return cls(first, second, is_shared=shared, cleanup=undo.pop_all())

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of both brokers, in the form that stomp.py and other clients accept."""
        return [(broker.host, broker.port) for broker in self.brokers]

    @property
    def url(self) -> str:
        """Both addresses as ``failover:(stomp://...,stomp://...)``."""
        return f"failover:({','.join(broker.url for broker in self.brokers)})"

    @property
    def active(self) -> RunningBroker:
        """The broker that clients should use now: the first one, until ``fail_over``."""
        return self.brokers[self._active]

    def fail_over(self) -> RunningBroker:
        """Kill the active broker as ``kill -9`` does; return the other one, which runs then.

        The other one is restarted if an earlier call killed it; with a shared store, only after the
        active one has ended. Brokers that were not launched here are cut off instead: their address
        refuses connections.
        """
        ending, self._active = self.active, 1 - self._active
        if self.is_shared:
            ending.cut_off()
        self.active.bring_back()
        ending.cut_off()
        return self.active

    def stop(self) -> None:
        """Stop both brokers and remove their shared files."""
        self._cleanup.close()

    def __enter__(self) -> Self:
        """Return the pair."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop both."""
        self.stop()


def obtain_pair(
    settings: Settings, name: str | None = None, *, shared: bool = False, **fields: Any
) -> FailoverPair:
    """Return two brokers as configured by the settings; with ``shared`` on one store.

    Arguments and errors are those of ``obtain``; ``--mq`` must give two addresses.
    """
    if name is None and settings.addresses:
        if shared:
            raise OwnBrokerNeededError(
                "stomp_broker_factory.pair(shared=True) launches two brokers on one store, and --mq"
                " gives running ones: leave --mq out"
            )
        if len(settings.addresses) == 1:
            raise OwnBrokerNeededError(
                "stomp_failover and stomp_broker_factory.pair() need two brokers, and --mq gives"
                " one: use --mq HOST:PORT,HOST:PORT, or leave it out"
            )
        return FailoverPair(
            obtain_given(settings, 0, **fields), obtain_given(settings, 1, **fields)
        )
    with ExitStack() as undo:
        # The proxy keeps the port, so that connections to an ended broker are refused.
        fields = {**fields, "frames": True}
        if shared:
            folder = undo.enter_context(shared_folder())
            fields = {"directory": folder, "persistent": True, **fields}
        second = undo.enter_context(obtain(settings, name, **fields))
        if shared:
            second.cut_off()
        first = undo.enter_context(obtain(settings, name, **fields))
        return FailoverPair(first, second, is_shared=shared, cleanup=undo.pop_all())
