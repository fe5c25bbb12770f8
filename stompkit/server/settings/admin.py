"""The settings of the admin HTTP interface.

They are separate from its code, since importing HTTP takes long.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

__all__ = ["AdminSettings"]

Count = Annotated[int, Meta(ge=1)]


class AdminSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A console, an API and metrics over HTTP for operators of the broker.

    It is off unless it has endpoints. Without ``read_token_file``, all users may do everything.
    docs/reference/admin.rst describes it.
    """

    endpoints: tuple[str, ...] = ()
    """Endpoints to listen on, as for clients: ``tcp:15613:interface=127.0.0.1``,
    ``unix:/run/stompkit-admin.sock``. Endpoints that other machines can reach need a
    ``token_file``. They should be ``stomps:...:certificate=FILE``, so that nobody on the network
    can read requests and answers."""
    token_file: str | None = None
    """A file with a token of 16 characters or more, which has to come with every request as
    ``Authorization: Bearer``; ``/health`` and ``/ready`` go without. A changed file is read
    again, and the former token ends."""
    read_token_file: str | None = None
    """A file with another token, for users who may read everything and change nothing, and for
    programs such as Prometheus. It needs ``token_file``."""
    hosts: tuple[str, ...] = ()
    """Names by which browsers may ask for it without a token, besides those of loopback: of a
    proxy in front, say. Any other is refused, since it could be that of somebody else's page."""
    max_connections: Count = 100
    """Connections at a time; one more is closed."""
    max_streams: Count = 20
    """Connections that get events, out of these."""
    max_body_bytes: Count = 1024 * 1024
    """Bytes in the body of a request."""
    max_operations: Count = 4
    """Queues that are being purged or moved at a time; one more is refused."""
    timeout_s: Annotated[float, Meta(gt=0)] = 30.0
    """Seconds in which a request has to be there, and in which an idle connection has to send
    one."""
    max_followed: Count = 1_000
    """Destinations of which rates and history are kept: those that were there first."""
    max_metric_destinations: Count = 1_000
    """Destinations that ``/metrics`` lists; the others are summed up as ``other``."""
    max_frames_per_s: Count = 100
    """Frames that somebody who looks on is shown in a second; the others are counted."""
