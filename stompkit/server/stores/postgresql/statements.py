"""The statements of a store in PostgreSQL.

Each commit is one round trip: its statements are sent together, and end with the protocol's Sync,
by which PostgreSQL commits all of them or none. Parameters are arrays, one for each column.

The plans must not depend on statistics, which are out of date on tables whose rows come and go.
So each statement finds its rows by the primary key, and the settings of the connection exclude
everything else.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "DELETE_RECORDS",
    "DROP_LANES",
    "DROP_MESSAGES",
    "DURABLE_FENCE",
    "END_LOST",
    "END_OTHERS",
    "FENCE",
    "HAS_LEASES",
    "HOLDS_LEASE",
    "INSERT_LANES",
    "INSERT_MESSAGES",
    "INSERT_RECORDS",
    "LANES",
    "LEASE_OWNER",
    "LOCAL_SYNC",
    "LOCKED_STAMP",
    "MARK",
    "NOT_SYNCHRONOUS",
    "READ",
    "RECORDS",
    "REMOVE_PLACES",
    "REMOVE_RANGE",
    "SETTINGS",
    "SET_STAMP",
    "SOME_LANES",
    "STAMP",
    "SYNCHRONOUS",
    "UPDATE_LANE",
]

#: For each connection. Without ``jit = off``, the cost of excluded plans would start the compiler.
SETTINGS: Final = (
    "SET enable_seqscan = off",
    "SET jit = off",
    "SET plan_cache_mode = force_generic_plan",
    "SET default_transaction_isolation = 'read committed'",
)
#: Durability of commits. A server setting that is safer than ``on`` is kept.
SYNCHRONOUS: Final = (
    "SELECT set_config('synchronous_commit', 'on', false)"
    " WHERE current_setting('synchronous_commit') = 'off'"
)
NOT_SYNCHRONOUS: Final = "SET synchronous_commit = off"
LOCAL_SYNC: Final = (
    "SELECT set_config('synchronous_commit', 'on', true)"
    " WHERE current_setting('synchronous_commit') = 'off'"
)

# Sessions.

#: Ends the sessions of this broker whose connections it has lost. A session that waits for the rest
#: of a batch would keep its locks.
END_LOST: Final = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = current_setting('application_name') AND usename = current_user
    AND datname = current_database() AND pid <> pg_backend_pid()
"""
#: Ends the sessions of all other brokers.
END_OTHERS: Final = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name LIKE 'stompkit-store %' AND usename = current_user
    AND datname = current_database() AND pid <> pg_backend_pid()
"""

# Fence.

STAMP: Final = "SELECT stamp FROM stompkit_meta WHERE id = 1"
LOCKED_STAMP: Final = f"{STAMP} FOR UPDATE"
SET_STAMP: Final = "UPDATE stompkit_meta SET stamp = %(stamp)s WHERE id = 1"
HAS_LEASES: Final = "SELECT to_regclass('stompkit_lease') IS NOT NULL"
LEASE_OWNER: Final = """
SELECT owner FROM stompkit_lease
WHERE id = 1 AND deadline > extract(epoch from clock_timestamp())
"""
#: Also keeps others from taking over until the transaction ends.
HOLDS_LEASE: Final = """
SELECT id FROM stompkit_lease
WHERE id = 1 AND epoch = %(epoch)s AND instance = %(instance)s FOR SHARE
"""

#: Replaces the stamp. Fails if it is not one of the known ones, and with it the whole transaction:
#: an error is the only way to say so without waiting for a result.
_FENCE: Final = """
WITH fence AS (
    UPDATE stompkit_meta SET stamp = %(stamp)s WHERE id = 1 AND stamp = ANY(%(known)s) RETURNING id
)
SELECT 1 / count(*){more} FROM fence
"""
FENCE: Final = _FENCE.format(more="")
#: Also makes the commit durable. The setting of the connection does not suffice: a pooler can give
#: the server's session to another client, which changes it.
DURABLE_FENCE: Final = _FENCE.format(
    more=""", CASE WHEN current_setting('synchronous_commit') = 'off'
    THEN set_config('synchronous_commit', 'on', true) END"""
)

# Changes.

DROP_MESSAGES: Final = "DELETE FROM stompkit_messages WHERE lane = ANY(%(lanes)b)"
DROP_LANES: Final = "DELETE FROM stompkit_lanes WHERE lane = ANY(%(lanes)b)"

INSERT_LANES: Final = """
INSERT INTO stompkit_lanes
    (lane, queue, part, messages, octets, last_place, delivered_place)
SELECT * FROM unnest(%(lanes)b, %(queues)b, %(parts)b, %(messages)b, %(octets)b, %(last)b,
    %(delivered)b)
"""

_UPDATE_LANE: Final = """
UPDATE stompkit_lanes
SET messages = messages + %(messages)s{messages}, octets = octets + %(octets)s{octets},
    last_place = %(last)s, delivered_place = %(delivered)s
WHERE lane = %(lane)s
"""
UPDATE_LANE: Final = _UPDATE_LANE.format(messages="", octets="")
_WITHOUT_GONE: Final = _UPDATE_LANE.format(
    messages=" - (SELECT count(*) FROM gone)",
    octets=" - (SELECT coalesce(sum(size), 0) FROM gone)",
)
#: Removes the messages between two places, and updates the lane.
REMOVE_RANGE: Final = f"""
WITH gone AS (
    DELETE FROM stompkit_messages
    WHERE lane = %(lane)s AND place BETWEEN %(first)s AND %(until)s
    RETURNING size
)
{_WITHOUT_GONE}
"""
#: Removes the messages in several ranges. ``OFFSET 0`` keeps the planner from joining the ranges
#: with all messages.
REMOVE_PLACES: Final = f"""
WITH gone AS (
    DELETE FROM stompkit_messages
    WHERE ctid = ANY(ARRAY(
        SELECT found.at
        FROM unnest(%(firsts)b, %(untils)b) AS wanted (first, until)
        CROSS JOIN LATERAL (
            SELECT ctid AS at FROM stompkit_messages
            WHERE lane = %(lane)s AND place BETWEEN wanted.first AND wanted.until
            OFFSET 0
        ) AS found
    ))
    RETURNING size
)
{_WITHOUT_GONE}
"""

INSERT_MESSAGES: Final = """
INSERT INTO stompkit_messages
    (lane, place, deliveries, size, expires_ms, due_ms, id, header_lines, body)
SELECT * FROM unnest(%(lanes)b, %(places)b, %(deliveries)b, %(sizes)b, %(expires)b, %(due)b,
    %(ids)b, %(lines)b, %(bodies)b)
"""

MARK: Final = """
UPDATE stompkit_messages SET deliveries = %(deliveries)s
WHERE lane = %(lane)s AND place = %(place)s
"""

DELETE_RECORDS: Final = "DELETE FROM stompkit_records WHERE digest = ANY(%(digests)b)"
INSERT_RECORDS: Final = """
INSERT INTO stompkit_records (digest, name, value)
SELECT * FROM unnest(%(digests)b, %(names)b, %(values)b)
"""

# Reading.

_LANE_COLUMNS: Final = "lane, queue, part, messages, octets, last_place, delivered_place"
LANES: Final = f"SELECT {_LANE_COLUMNS} FROM stompkit_lanes ORDER BY lane"
SOME_LANES: Final = f"SELECT {_LANE_COLUMNS} FROM stompkit_lanes WHERE lane = ANY(%(lanes)b)"
RECORDS: Final = "SELECT name, value FROM stompkit_records"

#: The first message, and further ones as long as their sizes fit. Large bodies are fetched last,
#: since the inner query can find more messages than are needed.
READ: Final = """
SELECT place, greatest(deliveries, (place <= (
        SELECT delivered_place FROM stompkit_lanes WHERE lane = %(lane)s
    ))::int), size, expires_ms, due_ms, id, header_lines, body
FROM (
    SELECT *, row_number() OVER first AS number, sum(size) OVER first AS total
    FROM (
        SELECT * FROM stompkit_messages
        WHERE lane = %(lane)s AND place > %(after)s
        ORDER BY place
        LIMIT %(messages)s
    ) AS next
    WINDOW first AS (ORDER BY place ROWS UNBOUNDED PRECEDING)
) AS counted
WHERE number = 1 OR total <= %(octets)s
ORDER BY place
"""
