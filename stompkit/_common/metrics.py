"""Metrics for Prometheus, served over HTTP. Needs the extra ``metrics``."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from stompkit._common.addresses import host_port
from stompkit._common.files import reason_of

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector

__all__ = [
    "Address",
    "MetricsError",
    "Samples",
    "counter",
    "gauge",
    "listen_reason",
    "new_registry",
    "parse_address",
    "serving",
    "serving_collector",
]

#: One number, or numbers with the values of the labels; None describes a metric without a value.
Samples: TypeAlias = "float | Iterable[tuple[Sequence[str], float]] | None"

_LOOPBACK: Final = "127.0.0.1"
_IS_ADDRESS: Final = re.compile(r"(?:(\[[0-9A-Fa-f:.]+\]|[^\s:\[\]]+):)?([0-9]{1,5})").fullmatch
_MOST_PORT: Final = 65_535


class MetricsError(Exception):
    """Metrics cannot be served; ``str()`` says why, and what to do."""


class Address(NamedTuple):
    """An address to listen on."""

    host: str
    #: The number; 0 for any free one.
    port: int

    def __str__(self) -> str:
        return host_port(self.host, self.port)


def parse_address(text: str) -> Address:
    """Parse ``HOST:PORT``, or a port of the loopback interface; raises ``ValueError``."""
    found = _IS_ADDRESS(text)
    if found is None or int(found[2]) > _MOST_PORT:
        raise ValueError(f"{text!a} is not HOST:PORT, such as 127.0.0.1:9400, or a port alone")
    return Address((found[1] or _LOOPBACK).strip("[]"), int(found[2]))


def listen_reason(error: OSError) -> str:
    """Return why a server cannot listen at an address, and what to do."""
    if error.errno == errno.EADDRINUSE:
        return "something listens there already: end that, or name another port"
    if error.errno == errno.EACCES:
        return "this is not allowed: name a port from 1024 on"
    if error.errno == errno.EADDRNOTAVAIL or error.errno is None or error.errno < 0:
        return f"{reason_of(error)}: name an address that this machine has"
    return reason_of(error)


def new_registry() -> CollectorRegistry:
    """Return a registry for metrics; raises :class:`MetricsError` if the library is missing."""
    try:
        from prometheus_client import CollectorRegistry
    except ModuleNotFoundError as error:
        raise MetricsError(f"metrics need {error.name}: pip install 'stompkit[metrics]'") from None
    return CollectorRegistry()


@contextmanager
def serving(address: Address, registry: CollectorRegistry) -> Iterator[Address]:
    """Serve metrics at an address; yields the actual one. Raises :class:`MetricsError`."""
    from prometheus_client import start_http_server

    try:
        server, thread = start_http_server(address.port, address.host, registry)
    except OSError as error:
        raise MetricsError(
            f"metrics cannot be served at {address}: {listen_reason(error)}"
        ) from None
    try:
        yield Address(address.host, server.server_port)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def serving_collector(collector: Collector, address: Address | None) -> Iterator[Address | None]:
    """Serve the metrics of a collector like :func:`serving`; do nothing without an address."""
    if address is None:
        yield None
        return
    registry = new_registry()
    registry.register(collector)
    with serving(address, registry) as found:
        yield found


# Metrics that collectors yield.


def counter(name: str, text: str, samples: Samples, labels: Sequence[str] = ()) -> Metric:
    """Return a counter with its current values."""
    from prometheus_client.core import CounterMetricFamily

    return _filled(CounterMetricFamily, name, text, samples, labels)


def gauge(name: str, text: str, samples: Samples, labels: Sequence[str] = ()) -> Metric:
    """Return a gauge with its current values."""
    from prometheus_client.core import GaugeMetricFamily

    return _filled(GaugeMetricFamily, name, text, samples, labels)


def _filled(
    kind: type[CounterMetricFamily | GaugeMetricFamily],
    name: str,
    text: str,
    samples: Samples,
    labels: Sequence[str],
) -> Metric:
    if not isinstance(samples, Iterable):
        return kind(name, text, value=samples)
    family = kind(name, text, labels=labels)
    for values, number in samples:
        family.add_metric(values, number)
    return family
