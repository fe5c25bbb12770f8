"""The admin HTTP interface of a broker: console, JSON API, health and metrics."""

from stompkit.server.admin.admin import Admin

__all__ = ["Admin"]
