"""The fields of log events in JSON, and their JSON Schema."""

from __future__ import annotations

from typing import Any, Final

# Imported for their events, which are registered when they are defined.
from stompkit.server.log import (
    client_events,
    lease_events,
    login_events,
    operator_events,
    process_events,
    store_events,
)
from stompkit.server.log.event import EVENTS

__all__ = ["COMMON", "FIELDS", "GROUPS", "LIBRARY", "log_schema"]

#: The modules of events, with the titles of their groups.
GROUPS: Final = {
    "Process": process_events,
    "Clients": client_events,
    "Logins": login_events,
    "Message store": store_events,
    "Lease": lease_events,
    "Operators": operator_events,
}
#: Name of the events of libraries.
LIBRARY: Final = "library"
#: Fields of every event.
COMMON: Final = {
    "time": "time in UTC, as RFC 3339, with microseconds",
    "level": "``info``, ``warning``, ``error`` or ``critical``; libraries also use ``debug``",
    "event": "name of the event, from the tables on this page",
    "message": "text for people, as in the text format",
}
#: Fields of some events. The others are absent.
FIELDS: Final = {
    "address": "address on which the broker listens, as ``HOST:PORT`` or ``unix:PATH``",
    "bytes": "size of a body in bytes",
    "client": "address of the client whose connection was closed",
    "code": "error code, as in ``stompkit-code`` of the ERROR frame",
    "command": "command of a frame",
    "connection": "id of a connection, as in the admin API",
    "count": "number of messages, requests or clients",
    "destination": "destination",
    "direction": "``<`` from a client, ``>`` to a client",
    "epoch": "number of the lease, which increases with each takeover",
    "error": "cause, as reported by the operating system or a library",
    "headers": "headers of a frame, as a JSON object in a string",
    "holder": "process that holds a lock",
    "host": "virtual host; absent for the default one",
    "hosts": "names of virtual hosts, separated by commas",
    "logger": "name of the library's logger",
    "name": "name of this broker in a lease",
    "operation": "operation of the admin API, such as ``purge``",
    "path": "file or socket",
    "peer": "address of the client or operator, as ``HOST:PORT`` or ``unix``",
    "place": "file and line of an error",
    "problem": "invalid setting and the reason",
    "protocol": "protocol of an endpoint",
    "reason": "reason, as in the message of the ERROR frame or of the admin API",
    "seconds": "duration in seconds",
    "setting": "name of a setting",
    "state": "notification for the service manager",
    "store": "database of the store",
    "successor": "name of the broker that takes over",
    "target": "queue to which messages were moved",
    "traceback": "place of a defect in the source code; several lines",
    "url": "URL of an HTTP service, without credentials",
    "user": "user",
    "value": "value of a database setting",
}
_NUMBERS: Final = frozenset({"bytes", "count", "epoch", "seconds"})


def log_schema() -> dict[str, Any]:
    """Return a JSON Schema (2020-12) of one line of the log in JSON."""
    properties: dict[str, Any] = {
        "time": {"type": "string", "format": "date-time"},
        "level": {"enum": ["debug", "info", "warning", "error", "critical"]},
        "event": {"enum": [*sorted(EVENTS), LIBRARY]},
        "message": {"type": "string"},
    }
    for name in FIELDS:
        properties[name] = {"type": "number" if name in _NUMBERS else "string"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Log event of stompkit",
        "type": "object",
        "properties": properties,
        "required": list(COMMON),
        "additionalProperties": False,
        "allOf": [
            {
                "if": {"properties": {"event": {"const": event.name}}},
                "then": {"propertyNames": {"enum": [*COMMON, "traceback", *event.fields]}},
            }
            for event in sorted(EVENTS.values(), key=lambda each: each.name)
        ],
    }
