"""The options of ``stompkit replicate``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from stompkit._common.arguments import Parser

__all__ = ["parser"]

_EPILOG: Final = """\
from:
  mysql://USER:PASSWORD@HOST/          the binary log of MySQL or MariaDB
  postgresql://USER:PASSWORD@HOST/DB   logical replication of PostgreSQL
  outbox+postgresql://..., outbox+sqlite:///FILE, outbox+mysql://...
                                       the outbox table of a database
  stomp://HOST:PORT/queue/NAME         changesets from a broker
to:
  stomp://A:61613,B:61613/topic/NAME   a broker; several hosts are used for failover
  sqlite:///FILE, postgresql://..., mysql://...
                                       tables of a database
  redis://HOST/0                       a cache in Redis
  opensearch+http://HOST:9200          a search index
  print, print:json                    standard output

env:NAME takes a URL from an environment variable, file:PATH from the first line of a file, so that
other users of the machine cannot read a password.

  stompkit replicate --from mysql://repl:secret@db/ --to stomp://mq:61613/queue/changes
  stompkit replicate --from stomp://mq:61613/queue/changes --to postgresql://me@db2/shop --create
  stompkit replicate --from postgresql://me@db/shop --to print --tables 'public.orders*'
  stompkit replicate --config shop.toml
  stompkit replicate --status
  stompkit replicate --forget NAME

The file of --config is TOML, with the names of the options as keys:

  from = "env:SHOP_DATABASE"
  to = "stomp://mq1:61613,mq2:61613/queue/changes"
  tables = ["shop.*"]
  masks = {"shop.users.email" = "hash:a secret of yours"}

After a stop or a crash, the job resumes at its checkpoint in --state-dir or in the target.

exit status: 0 stopped by a signal, or completed with --once; 1 failed, with the reason on standard
error; 2 wrong command line or configuration file; with --status 1 if a job failed or is not running
"""


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = Parser(
        prog="stompkit replicate",
        usage="stompkit replicate --from URL --to URL [options]",
        description="Replicate database changes to a broker, another database or a cache.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        # Values missing on the command line are taken from the file.
        argument_default=argparse.SUPPRESS,
    )
    add = parser.add_argument
    add("--from", metavar="URL", help="source of changes, see below")
    add("--to", metavar="URL", help="destination of changes, see below")
    add("--config", type=Path, default=None, metavar="FILE", help="read options from this file")
    add("--name", help="name of the job and its files (default: derived from the URLs)")
    add("--state-dir", metavar="DIR", help="directory for checkpoints and status")
    add("--status", action="store_true", default=False, help="print the status of jobs and exit")
    add("--json", action="store_true", default=False, help="with --status: print JSON")
    add(
        "--forget",
        default=None,
        metavar="NAME",
        help="remove the status of a job that does not run, and exit; its checkpoint stays",
    )
    add(
        "--verbose",
        action="store_true",
        default=False,
        help="write a detailed log to standard error",
    )
    add("--quiet", action="store_true", default=False, help="show no progress")
    add(
        "--metrics-port",
        type=int,
        default=0,
        metavar="PORT",
        help="serve Prometheus metrics on this port of the loopback interface",
    )
    group = parser.add_argument_group("what is replicated")
    add = group.add_argument
    add(
        "--tables",
        action="append",
        metavar="GLOB",
        help="replicate only SCHEMA.TABLE or TABLE; repeatable (default: all)",
    )
    add(
        "--exclude",
        action="append",
        metavar="GLOB",
        help="do not replicate these tables; repeatable",
    )
    add(
        "--exclude-columns",
        action="append",
        metavar="GLOB",
        help="do not replicate these columns; repeatable",
    )
    add(
        "--mask",
        action="append",
        dest="masks",
        type=_pair,
        metavar="GLOB=MASK",
        help="mask columns TABLE.COLUMN with hash:SECRET, null, constant:TEXT, truncate:N "
        "or drop; repeatable",
    )
    add(
        "--snapshot",
        choices=("initial", "never", "only"),
        help="existing rows: copy them first, never, or only them (default: initial)",
    )
    add("--once", action="store_true", help="stop at the position that the source had at the start")
    add(
        "--slot",
        metavar="NAME",
        help="PostgreSQL: name of slot and publication (default: stompkit)",
    )
    add(
        "--all-tables",
        action="store_true",
        help="PostgreSQL: publish FOR ALL TABLES; the server then rejects UPDATE and "
        "DELETE on new tables without a key",
    )
    add(
        "--server-id",
        type=int,
        metavar="N",
        help="MySQL: replication server id, unique among its servers",
    )
    group = parser.add_argument_group("brokers")
    add = group.add_argument
    add(
        "--partitions",
        type=int,
        metavar="N",
        help="distribute changes over N destinations, for N consumers",
    )
    add(
        "--max-frame-bytes",
        type=int,
        metavar="N",
        help="split changesets above this size in bytes (default: 1048576)",
    )
    add("--no-receipts", action="store_true", help="request no receipts, for brokers without them")
    add("--no-ack", action="store_true", help="send no acknowledgements, for brokers without ACK")
    add("--durable", metavar="NAME", help="use a durable subscription of this name to a topic")
    add(
        "--prefetch",
        type=int,
        metavar="N",
        help="maximum number of unacknowledged frames (default: 1000)",
    )
    add(
        "--dead-letter",
        metavar="DEST",
        help="destination for changes that cannot be applied; without it the job stops",
    )
    add(
        "--gap",
        choices=("wait", "stop", "skip"),
        help="reaction to missing changesets (default: wait)",
    )
    group = parser.add_argument_group("targets")
    add = group.add_argument
    add(
        "--batch",
        type=int,
        metavar="N",
        help="maximum changesets in one transaction (default: 100)",
    )
    add("--create", action="store_true", help="SQL: create missing tables")
    add("--no-evolve", dest="evolve", action="store_false", help="SQL: do not add columns")
    add(
        "--foreign-keys",
        choices=("deferred", "enforced", "off"),
        help="SQL: check foreign keys at the end of a transaction, immediately, or not "
        "(default: deferred)",
    )
    add(
        "--schema-map",
        action="append",
        type=_pair,
        metavar="A=B",
        help="SQL: write schema A to schema B; repeatable (default: all to the default schema)",
    )
    add(
        "--table-map",
        action="append",
        type=_pair,
        metavar="A=B",
        help="SQL: write table A or SCHEMA.A to table B or SCHEMA.B; repeatable",
    )
    add("--namespace", help="Redis: prefix of keys")
    add("--ttl", type=float, metavar="S", help="Redis: expire rows after this many seconds")
    add("--index", metavar="NAME", help="search: name of the index (default: {table})")
    parser.spare = "--tables {}"
    return parser


def _pair(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found:
        raise argparse.ArgumentTypeError("this is NAME=VALUE")
    return name, value
