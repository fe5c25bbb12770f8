"""The settings of the beanstalkd front end.

They are separate from its code, which is imported only if it has an endpoint.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

__all__ = ["BeanstalkSettings"]

Count = Annotated[int, Meta(ge=1)]


class BeanstalkSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Clients of beanstalkd, whose tubes are queues. Without endpoints there are none of them."""

    endpoints: tuple[str, ...] = ()
    """Endpoints to listen on, as in ``[[listen]]``: ``tcp:11300:interface=127.0.0.1``. Their
    protocol has no login, so it has to be an address of the loopback interface or a Unix socket."""
    allow_remote: bool = False
    """``true`` allows endpoints that other machines can reach: everybody who does may put,
    take and delete messages."""
    tubes: tuple[str, ...] = ()
    """The tubes that there are for these clients, by name or by pattern: ``jobs.>``. All others
    are refused. Without any, all are allowed; where logins or rights are checked for other
    clients, they have to be listed, and ``>`` lists all."""
    max_job_octets: Annotated[int, Meta(ge=0, le=1024 * 1024 * 1024)] = 65_535
    """Bytes in the body of a job that is put."""
    default_ttr_s: Count = 60
    """Seconds that a worker has for a message that was not put as a job, and says nothing of it."""
    max_watched: Count = 1_000
    """Tubes that one connection can watch."""
    max_reserved: Count = 10_000
    """Jobs that one connection can have reserved; a further ``reserve`` waits, and ``reserve-job``
    returns ``OUT_OF_MEMORY``."""
    max_known_jobs: Count = 100_000
    """Jobs of which it is remembered where they are, and how often they timed out or were
    released, buried and kicked. The oldest are forgotten first; those have to be searched for."""
    draining: bool = False
    """``true`` answers ``put`` with DRAINING; all other commands work."""
