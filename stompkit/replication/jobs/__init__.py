"""Replication jobs: from one URL to another, as ``stompkit replicate`` runs them.

=========================================  ======================================================
from
``mysql://``, ``mariadb://``               the binary log of a server
``postgresql://``                          logical replication of a database
``outbox+sqlite://``, ``outbox+...``       the outbox table of a database
``stomp://``, ``stomps://``                changesets from a broker
to
``stomp://``, ``stomps://``                a broker
``sqlite://``, ``postgresql://``,          tables of an SQL database
``mysql://``, ``mariadb://``
``redis://``, ``rediss://``, ``unix://``   a cache in Redis
``opensearch+http://``, ``...+https://``,  a search index
``elasticsearch+http://``, ...
``print``, ``print:json``                  standard output
=========================================  ======================================================
"""

from __future__ import annotations

from stompkit._common.moved import renamed
from stompkit._common.secrets import mask_url as masked
from stompkit.replication.jobs._job import Job
from stompkit.replication.jobs._settings import JobError, JobSettings, JobStatus

__all__ = ["Job", "JobError", "JobSettings", "JobStatus", "masked"]

renamed(
    __name__,
    JobProblem="JobError",
)
