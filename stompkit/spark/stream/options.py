"""Options of the format ``stomp``, parsed from Spark's strings."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast

from stompkit._common.certificates import TlsFiles, authorities
from stompkit._common.spelling import suggestion
from stompkit.spark.java import SparkError
from stompkit.spark.stream.default_spool import default_spool
from stompkit.spool import ServerAccess, SpoolError, SpoolReader
from stompkit.spool.address import ACCESS_PATIENCE_S, is_url, other_url, parse_url

if TYPE_CHECKING:
    from stompkit.client.blocking import BrokerUrl

__all__ = ["Bound", "Ordinals", "SinkOptions", "SourceOptions"]


class Ordinals(NamedTuple):
    """Ordinals as a bound of a read."""

    by_partition: dict[int, int]
    #: Id of the spool that they are about, if the bound is an offset of a checkpoint.
    spool: str | None = None
    #: Epoch of the spool, if the offset has one.
    epoch: str = ""


#: Bound of a read: an end of the spool, ordinals, or seconds since 1970.
Bound = Literal["earliest", "latest"] | Ordinals | float

#: Content of the rows: messages, changes, or ranges to read.
Payload = Literal["raw", "changeset", "ranges"]

#: Handling of a permanent gap between changesets.
GapPolicy = Literal["stop", "wait", "skip"]

_CONNECTION: Final = (
    "hosts",
    "login",
    "passcode",
    "virtualHost",
    "tls",
    "tlsCa",
    "tlsCert",
    "tlsKey",
    "headers",
    "receipts",
)
_SOURCE: Final = (
    *_CONNECTION,
    "spool",
    "spoolToken",
    "spoolCa",
    "spoolTimeout",
    "destination",
    "destinations",
    "selector",
    "durable",
    "ack",
    "partitions",
    "startingOffsets",
    "startingTimestamp",
    "endingOffsets",
    "endingTimestamp",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerTrigger",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "payload",
    "reader",
    "gap",
    "gapTimeout",
    "beginningWait",
    "pushFilters",
)
_SINK: Final = (*_CONNECTION, "destination")
#: Options that Spark passes to a sink for itself.
_OF_SPARK: Final = ("path", "checkpointLocation", "queryName", "outputMode")
_DEFAULT_ROWS: Final = 100_000
#: Limit because task results are collected on the driver, whose heap has 1 GB by default.
_DEFAULT_BYTES: Final = 64 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """Options of ``spark.read`` and ``spark.readStream``."""

    spool: Path | str
    """Folder, or the URL of a server."""
    spool_token: str = field(default="", repr=False)
    spool_ca: str = ""
    """Path of the trusted certificates of a server; empty for those of the system."""
    spool_timeout_s: float = ACCESS_PATIENCE_S
    """Time in seconds to retry while a server does not answer."""
    broker: BrokerUrl | None = None
    """Brokers to receive from; None if another process fills the spool."""
    destinations: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    """Additional headers of SUBSCRIBE."""
    selector: str = ""
    durable: str = ""
    ack: str = "client-individual"
    receipts: bool = True
    """True if the broker supports receipts."""
    partitions: int = 1
    """Number of partitions of a new spool."""
    starting: Bound = "earliest"
    ending: Bound = "latest"
    """End of a batch read."""
    batch: tuple[Mapping[str, Any], Mapping[str, Any]] | None = None
    """Offsets of a checkpoint as both bounds: the stream's batch between them is read."""
    fail_on_data_loss: bool = True
    min_partitions: int = 1
    max_records: int = _DEFAULT_ROWS
    """Maximum number of messages in a micro-batch."""
    max_bytes: int = _DEFAULT_BYTES
    """Maximum size in bytes of a micro-batch; a larger message forms a batch alone."""
    payload: Payload = "raw"
    reader: str = ""
    """Name of the registered reader that retention considers; empty for none."""
    gap: GapPolicy = "stop"
    """Handling of missing changesets: stop with an error, wait, or skip them."""
    gap_timeout_s: float = 30.0
    beginning_wait_s: float = 2.0
    """Time in seconds to wait for number 1 of a new origin."""
    push_filters: bool = False

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        """Parse the options; raises :class:`~stompkit.spark.session.SparkError` for errors."""
        given = _Given(options, _SOURCE)
        destinations = (*given.listed("destinations"), *given.listed("destination"))
        broker = given.broker()
        spool = given.text("spool")
        if broker is not None and not destinations:
            raise SparkError("the option hosts goes with the option destinations")
        if broker is None and not spool:
            raise SparkError(
                "the source stomp needs the option spool, the folder of a spool or the URL of its "
                "server, or hosts and destinations to receive from, for which it makes one"
            )
        if broker is not None and is_url(spool):
            raise SparkError(
                "with the option hosts, spool is a folder to receive into, and not a server"
            )
        starting = given.bound("starting", "earliest")
        headers, selector, durable = given.headers(), given.text("selector"), given.text("durable")
        folder = given.spool()
        if folder is None:
            assert broker is not None
            folder = default_spool(
                broker, destinations, selector=selector, durable=durable, headers=headers
            )
        return cls(
            spool=folder,
            spool_token=given.text("spoolToken"),
            spool_ca=given.text("spoolCa"),
            spool_timeout_s=given.number("spoolTimeout", round(ACCESS_PATIENCE_S)),
            broker=broker,
            destinations=destinations,
            headers=headers,
            selector=selector,
            durable=durable,
            ack=given.choice("ack", ("client-individual", "client", "auto")),
            receipts=given.truth("receipts", default=True),
            partitions=given.number("partitions", 1),
            starting=starting,
            ending=given.bound("ending", "latest"),
            batch=given.batch(),
            fail_on_data_loss=given.truth("failOnDataLoss", default=True),
            min_partitions=given.number("minPartitions", 1),
            max_records=given.number(
                "maxRecordsPerTrigger", given.number("maxOffsetsPerTrigger", _DEFAULT_ROWS)
            ),
            max_bytes=given.number("maxBytesPerTrigger", _DEFAULT_BYTES),
            payload=cast("Payload", given.choice("payload", ("raw", "changeset", "ranges"))),
            reader=given.text("reader"),
            gap=cast("GapPolicy", given.choice("gap", ("stop", "wait", "skip"))),
            gap_timeout_s=given.number("gapTimeout", 30),
            beginning_wait_s=given.number("beginningWait", 2),
            push_filters=given.truth("pushFilters", default=False),
        )

    def open(self, *, expect_id: str = "", timeout_s: float | None = None) -> SpoolReader:
        """Open the spool; raises :class:`~stompkit.spool.SpoolError`.

        ``timeout_s`` replaces the time to retry while a server does not answer.
        """
        return SpoolReader(self.spool, expect_id=expect_id, access=self.access(timeout_s))

    def access(self, timeout_s: float | None = None) -> ServerAccess | None:
        """Return what the server of the spool requires; None for a folder."""
        if not is_url(self.spool):
            return None
        try:
            trusted = b"\n".join(authorities(self.spool_ca)).decode() if self.spool_ca else ""
        except ValueError as error:
            raise SpoolError(f"the option spoolCa: {error}") from None
        patience_s = self.spool_timeout_s if timeout_s is None else timeout_s
        return ServerAccess(self.spool_token, trusted, patience_s)

    def spool_options(self) -> dict[str, str]:
        """Return the options with which another query opens the same spool."""
        options = {"spool": str(self.spool)}
        if is_url(self.spool):
            options["spoolToken"] = self.spool_token
            options["spoolTimeout"] = str(round(self.spool_timeout_s))
            if self.spool_ca:
                options["spoolCa"] = self.spool_ca
        return options


@dataclass(frozen=True, kw_only=True)
class SinkOptions:
    """Options of ``df.write`` and ``df.writeStream``."""

    broker: BrokerUrl
    destination: str = ""
    """Destination of rows without a column ``destination``."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers of every SEND; those of a row take precedence."""
    receipts: bool = True

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SinkOptions:
        """Parse the options; raises :class:`~stompkit.spark.session.SparkError` for errors."""
        given = _Given(options, _SINK)
        broker = given.broker()
        if broker is None:
            raise SparkError("the sink stomp needs the option hosts, as in mq1:61613,mq2:61613")
        return cls(
            broker=broker,
            destination=given.text("destination"),
            headers=given.headers(),
            receipts=given.truth("receipts", default=True),
        )


class _Given:
    """The given options, with case-insensitive names."""

    def __init__(self, options: Mapping[str, str], known: Iterable[str]) -> None:
        self._names = {name.lower(): name for name in known}
        ignored = {name.lower() for name in _OF_SPARK}
        self._values = {
            name.lower(): value for name, value in options.items() if name.lower() not in ignored
        }
        for name in self._values:
            if name not in self._names:
                advice = suggestion(name, list(self._names.values()))
                raise SparkError(f"the format stomp has no option {name}; {advice}")

    def text(self, name: str) -> str:
        return self._values.get(name.lower(), "")

    def spool(self) -> Path | str | None:
        """Return the folder of the spool or the URL of its server; None if it is not given."""
        text = self.text("spool")
        if problem := other_url(text):
            raise SparkError(f"the option spool: {problem}")
        if not is_url(text):
            for name in ("spoolToken", "spoolCa"):
                if self.text(name):
                    raise SparkError(f"the option {name} is for the URL of a server as spool")
            return Path(text) if text else None
        try:
            url = parse_url(text)
        except ValueError as error:
            raise SparkError(f"the option spool: {error}") from None
        if not self.text("spoolToken"):
            raise SparkError(
                "the option spoolToken is missing: the first line of the token file of the server"
            )
        return str(url)

    def listed(self, name: str) -> tuple[str, ...]:
        """Return the comma-separated values of an option."""
        return tuple(each.strip() for each in self.text(name).split(",") if each.strip())

    def number(self, name: str, default: int) -> int:
        """Return a positive integer."""
        text = self.text(name).strip()
        if not text:
            return default
        if not (text.isascii() and text.isdecimal() and len(text) < 19 and int(text)):
            raise SparkError(f"the option {name} is a whole number from 1, and not {text!r}")
        return int(text)

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """Return one of several values, case-insensitively; the first is the default."""
        text = self.text(name).strip().lower() or choices[0]
        if text not in choices:
            raise SparkError(f"the option {name} is {' or '.join(choices)}, and not {text!r}")
        return text

    def truth(self, name: str, *, default: bool) -> bool:
        return self.choice(name, ("true", "false") if default else ("false", "true")) == "true"

    def headers(self) -> dict[str, str]:
        """Return a JSON object of texts."""
        text = self.text("headers")
        if not text:
            return {}
        return {name: str(value) for name, value in self._json_object("headers", text).items()}

    def broker(self) -> BrokerUrl | None:
        """Return the brokers; None if no host is given."""
        hosts = self.listed("hosts")
        if not hosts:
            return None
        # Most Spark processes only read: without Twisted they start in half the time.
        from stompkit.client.blocking import BrokerUrl

        files = TlsFiles(*(self.text(each) for each in ("tlsCa", "tlsCert", "tlsKey")))
        if files.key and not files.cert:
            raise SparkError("the option tlsKey goes with tlsCert")
        try:
            # The URL parser checks the hosts and adds the default port.
            places = BrokerUrl.parse(f"stomp://{','.join(hosts)}").hosts
        except ValueError:
            raise SparkError(
                "the option hosts is HOST:PORT, or several with commas between them"
            ) from None
        return BrokerUrl(
            hosts=places,
            login=self._values.get("login"),
            passcode=self._values.get("passcode"),
            virtual_host=self._values.get("virtualhost"),
            tls=self.truth("tls", default=False) or any(files),
            **files._asdict(),
        )

    def bound(self, name: str, default: Literal["earliest", "latest"]) -> Bound:
        """Return the bound in ``startingOffsets`` or ``startingTimestamp``, or that of the end."""
        offsets, time = self.text(f"{name}Offsets").strip(), self.text(f"{name}Timestamp").strip()
        if offsets and time:
            raise SparkError(f"of {name}Offsets and {name}Timestamp there can be only one")
        if time:
            return _seconds(f"{name}Timestamp", time)
        if not offsets:
            return default
        if offsets in ("earliest", "latest"):
            return cast('Literal["earliest", "latest"]', offsets)
        found = self._json_object(f"{name}Offsets", offsets)
        # The offset format of a checkpoint is accepted, too.
        inner = found.get("p")
        made = {}
        for partition, ordinal in (inner if isinstance(inner, dict) else found).items():
            if not partition.isdecimal() or type(ordinal) is not int or ordinal < -2:
                raise SparkError(
                    f'the option {name}Offsets is earliest, latest, or like {{"0": 1200}}: an '
                    "ordinal for each partition, -2 for its earliest and -1 for its latest"
                )
            made[int(partition)] = ordinal
        if "spool" not in found:
            return Ordinals(made)
        return Ordinals(made, str(found["spool"]), str(found.get("e", "")))

    def batch(self) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
        """Return both bounds of a batch, if they are the offsets of a checkpoint."""
        texts = [self.text(f"{name}Offsets").strip() for name in ("starting", "ending")]
        if not all(text.startswith("{") for text in texts):
            return None
        start, end = (self._json_object("Offsets", text) for text in texts)
        return (start, end) if "spool" in start and "spool" in end else None

    def _json_object(self, name: str, text: str) -> dict[str, object]:
        found: object
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise SparkError(f"the option {name} is a JSON object, and not {text[:40]!r}")
        return found


def _seconds(name: str, text: str) -> float:
    """Return a time in seconds from milliseconds since 1970, as in Spark's sources, or ISO 8601."""
    try:
        if text.isascii() and text.isdecimal():
            return int(text) / 1000
        time = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise SparkError(
            f"the option {name} is a time like 2026-11-21T12:00:00Z, or milliseconds since 1970, "
            f"and not {text[:40]!r}"
        ) from None
    return (time if time.tzinfo is not None else time.replace(tzinfo=UTC)).timestamp()
