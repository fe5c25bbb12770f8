"""URLs of jobs: their kinds, and their secrets."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Final

from sqlalchemy import Engine, create_engine, make_url

from stompkit._common.secrets import mask_url
from stompkit.client.blocking import BrokerUrl
from stompkit.replication.jobs._settings import JobError, JobSettings

__all__ = [
    "BROKERS",
    "REDIS",
    "SEARCH",
    "broker_of",
    "check",
    "engine_of",
    "is_source",
    "is_target",
    "name_of",
    "scheme_of",
]

BROKERS: Final = ("stomp", "stomps")
REDIS: Final = ("redis", "rediss", "unix")
SEARCH: Final = (
    "opensearch+http",
    "opensearch+https",
    "elasticsearch+http",
    "elasticsearch+https",
)
#: SQLAlchemy's driver for each kind of URL.
_DRIVERS: Final = {
    "sqlite": "sqlite",
    "postgresql": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
}
#: Maximum number of characters of each URL in the name of a job.
_NAME_CHARACTERS: Final = 60


def is_source(scheme: str) -> bool:
    databases = ("mysql", "mariadb", "postgresql")
    outboxes = tuple(f"outbox+{name}" for name in _DRIVERS)
    return scheme in (*databases, *outboxes, *BROKERS)


def is_target(scheme: str) -> bool:
    return scheme in (*_DRIVERS, *REDIS, *SEARCH, *BROKERS, "print")


def scheme_of(url: str, option: str, knows: Callable[[str], bool]) -> str:
    """Return the scheme of a URL, without an SQLAlchemy driver."""
    if option == "to" and url in ("print", "print:json"):
        return "print"
    scheme, found, _ = url.partition("://")
    plain = scheme
    for name in _DRIVERS:
        if scheme.removeprefix("outbox+").startswith(f"{name}+"):
            plain = scheme[: scheme.index(name) + len(name)]
    if not found or not knows(plain):
        raise JobError(
            f"--{option} is a URL that begins with "
            + (
                "mysql://, mariadb://, postgresql://, stomp://, or outbox+ and one of SQLAlchemy"
                if option == "from"
                else "stomp://, sqlite://, postgresql://, mysql://, mariadb://, redis://, "
                "opensearch+http://, elasticsearch+http://, or it is print or print:json"
            )
            + f"; {mask_url(url)!r} does not"
        )
    return plain


def broker_of(url: str, option: str) -> BrokerUrl:
    try:
        parsed = BrokerUrl.parse(url)
    except ValueError as error:
        raise JobError(f"--{option}: {error}") from None
    if not parsed.destination:
        raise JobError(
            f"--{option} {mask_url(url)!r} names no destination: stomp://HOST:PORT/queue/NAME"
        )
    return parsed


def engine_of(url: str) -> Engine:
    parsed = make_url(url)
    driver = _DRIVERS.get(parsed.drivername)
    return create_engine(parsed.set(drivername=driver) if driver else parsed)


def check(settings: JobSettings, brokers: Sequence[BrokerUrl]) -> None:
    """Refuse contradictory or ineffective settings; raises :class:`JobError`."""
    is_from_broker = settings.source.startswith(BROKERS)
    if min(settings.partitions, settings.max_frame_bytes, settings.batch, settings.prefetch) < 1:
        raise JobError("--partitions, --max-frame-bytes, --batch and --prefetch are at least 1")
    if settings.partitions > 1 and not settings.to.startswith(BROKERS):
        raise JobError(
            "--partitions is for a job that sends to a broker; each of their destinations, "
            "NAME.0, NAME.1 and so on, is read by a job of its own"
        )
    if len(brokers) == 2:
        source, target = brokers
        if source.destination == target.destination and set(source.hosts) & set(target.hosts):
            raise JobError("--to is where --from reads: it would go round for ever")
    for option, is_given in (("durable", settings.durable), ("dead-letter", settings.dead_letter)):
        if is_given and not is_from_broker:
            raise JobError(f"--{option} is for a job that reads a broker")
    if settings.durable and brokers[0].destination.startswith("/queue/"):
        raise JobError("--durable is for topics: a queue keeps what nobody has read anyway")
    if settings.dead_letter and settings.dead_letter == brokers[0].destination:
        raise JobError("--dead-letter is where --from reads: it would go round for ever")


def name_of(settings: JobSettings) -> str:
    """Return the job's name from its URLs, without secrets."""
    ends = (mask_url(settings.source), mask_url(settings.to))
    names = [re.sub(r"[^\w.]+", "-", each).strip("-") for each in ends]
    short = "--".join(each[:_NAME_CHARACTERS] for each in names)
    if max(map(len, names)) <= _NAME_CHARACTERS:
        return short
    # Two jobs with the same name prefix must not use each other's checkpoint.
    return f"{short}--{blake2b(' '.join(ends).encode(), digest_size=4).hexdigest()}"
