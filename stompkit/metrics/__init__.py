"""Metrics for Prometheus, served over HTTP. Needs the extra ``metrics``."""

from stompkit._common.metrics import Address, MetricsError, new_registry, parse_address, serving
from stompkit._common.moved import renamed

__all__ = ["Address", "MetricsError", "new_registry", "parse_address", "serving"]

renamed(
    __name__,
    MetricsProblem="MetricsError",
)
