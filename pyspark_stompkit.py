"""Where Spark finds the format ``stomp`` by itself: it looks into all modules of such a name."""

from __future__ import annotations

from stompkit.spark.source import StompDataSource as DefaultSource

__all__ = ["DefaultSource"]
