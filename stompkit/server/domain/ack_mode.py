"""The acknowledgement modes of subscriptions."""

from __future__ import annotations

from enum import Enum

__all__ = ["AckMode"]


class AckMode(Enum):
    """The values of SUBSCRIBE's ``ack`` header (1.2, "SUBSCRIBE ack Header")."""

    AUTO = "auto"
    CLIENT = "client"
    CLIENT_INDIVIDUAL = "client-individual"
