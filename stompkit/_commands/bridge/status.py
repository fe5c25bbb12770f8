"""Status of a bridge, for ``stompkit bridge --status``."""

from __future__ import annotations

from pathlib import Path

import msgspec

from stompkit._commands.shared.text import aligned, when
from stompkit._common.files import is_locked, reason_of, write_atomically
from stompkit._common.spelling import amount
from stompkit._common.text import shown
from stompkit.bridge import BridgeStatus, RouteStatus

__all__ = ["lock_of", "print_status", "write"]


def lock_of(path: Path) -> Path:
    """Return the lock file of the bridge whose status file is ``path``."""
    return path.with_name(path.name + ".lock")


def write(path: Path, status: BridgeStatus) -> None:
    """Replace the status file."""
    octets = msgspec.json.format(msgspec.json.encode(status), indent=1) + b"\n"
    write_atomically(path, octets, mode=None, durable=False)


def print_status(path: Path, *, as_json: bool) -> int:
    """Print the status file; returns 1 if the bridge does not run or a route has stopped."""
    try:
        status = msgspec.json.decode(path.read_bytes(), type=BridgeStatus)
    except (OSError, msgspec.DecodeError) as error:
        print(f"{path} has no status of a bridge: {reason_of(error)}")
        return 1
    runs = is_locked(lock_of(path))
    if as_json:
        found = {**msgspec.to_builtins(status), "running": runs}
        print(msgspec.json.format(msgspec.json.encode(found), indent=1).decode())
    else:
        if runs:
            print(f"{status.name} runs (process {status.pid}), since {when(status.started_s)}")
        else:
            print(f"{status.name} does not run; its last status is of {when(status.updated_s)}")
        rows = [("route", "from", "to", "state", "forwarded", "waiting")]
        for route in status.routes:
            waiting = route.buffered or route.under_way
            rows.append(
                (
                    route.name,
                    _end(route.source, route.source_connected),
                    _end(route.to, route.to_connected),
                    route.state,
                    f"{route.forwarded:,}",
                    f"{waiting:,}",
                )
            )
        for line in aligned(rows, (4, 5)):
            print(f"  {line}")
        for route in status.routes:
            for line in _more(route):
                print(f"  {route.name}: {shown(line)}")
    is_well = runs and all(route.state != "stopped" for route in status.routes)
    return 0 if is_well else 1


def _end(name: str, connected: bool) -> str:  # noqa: FBT001
    return name if connected else f"{name} (away)"


def _more(route: RouteStatus) -> list[str]:
    found = [route.problem] if route.problem else []
    counts = (
        (route.known, "known again"),
        (route.looped, "stopped by their hops"),
        (route.refused, "refused"),
    )
    found += [f"{amount(count, 'message')} {what}" for count, what in counts if count]
    return found
