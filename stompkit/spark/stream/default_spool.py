"""The folder of the spool that a query with ``hosts`` makes if its options name none."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stompkit.spark.java import SparkError

if TYPE_CHECKING:
    from stompkit.client.blocking import BrokerUrl

__all__ = ["default_spool"]


def default_spool(
    broker: BrokerUrl,
    destinations: Sequence[str],
    *,
    selector: str,
    durable: str,
    headers: Mapping[str, str],
) -> Path:
    """Return the folder: the same for queries to which a broker sends the same messages.

    Otherwise one query would return the messages of another. A folder of an earlier version is
    found again. Raises SparkError if it may have messages of other queries.
    """
    # Earlier versions gave one folder to all values of these.
    choosing = {
        "selector": selector,
        "durable": durable,
        "headers": dict(headers),
        "virtualHost": broker.virtual_host,
    }
    if broker.cert:
        # It may name the user, as a login does.
        choosing["tlsCert"] = broker.cert
    where = [sorted(broker.hosts), sorted(destinations)]
    folder = _folder([*where, {**choosing, "login": broker.login, "tls": broker.tls}])
    earlier = _folder(where)
    if folder.exists() or not earlier.exists():
        return folder
    given = [name for name, value in choosing.items() if value]
    if given:
        raise SparkError(
            f"the spool {earlier} of an earlier version has the messages of all queries of these"
            f" hosts and destinations, independent of {', '.join(given)}. To go on with it, set the"
            " option spool to this folder. To begin without its messages, remove it, or set the"
            " option spool to another folder"
        )
    return earlier


def _folder(determining: Sequence[object]) -> Path:
    """Return the folder for what determines the messages."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    text = json.dumps(determining, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return Path(base) / "stompkit" / "spools" / digest
