"""``stompkit recover``."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from sqlalchemy import create_engine

from stompkit._common.arguments import Parser
from stompkit._common.secrets import mask_url
from stompkit._common.text import json_line, text_of
from stompkit.client.blocking import BrokerUrl
from stompkit.replication.eventstore import (
    EventStore,
    PrepareCommit,
    SqlEventStore,
    SqlPrepareCommit,
    recover,
)
from stompkit.replication.eventstore.prepare import Prepared
from stompkit.replication.model.tables import Tables
from stompkit.replication.sinks.forwarders.printing import print_sub
from stompkit.replication.sinks.forwarders.stomp import StompSub

__all__ = ["main", "parser"]

_EPILOG: Final = """\
A program that uses redis_es_sub or sql_es_sub writes a note before each commit, and removes it
after publication. After a crash between the two, this command finds the note, reads the current
rows, and publishes them as the program would have done.

  stompkit recover --notes redis://cache/0 --database postgresql://me@db/shop --list
  stompkit recover --notes redis://cache/0 --database postgresql://me@db/shop \\
      --store redis://cache/0 --to stomp://mq:61613/queue/changes

The command can run while the program runs, repeatedly, and on several machines. Changes can be
published twice. Notes of running processes, and notes younger than --older-than, are skipped.

exit status: 0 no note is left; 1 some changes could not be recovered, and are printed; 2 wrong
command line
"""

_REDIS: Final = ("redis://", "rediss://", "unix://")


def main(arguments: list[str]) -> int:
    """Recover or list unpublished commits after crashes."""
    options = parser().parse_args(arguments)
    try:
        with ExitStack() as stack:
            notes = _notes(options, stack)
            if options.list:
                return _list(notes.stuck(options.older_than), is_json=options.json)
            return _recover(notes, options, stack)
    except Exception as error:
        text = text_of(error)
        for url in (options.notes, options.database, options.store, options.to):
            text = text.replace(url, mask_url(url)) if url else text
        print(f"stompkit recover: {text}", file=sys.stderr)
        return 1


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = Parser(
        prog="stompkit recover",
        usage="stompkit recover --notes URL --database URL [options]",
        description="Publish changes that a crash left committed but unpublished.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--notes", required=True, metavar="URL", help="location of the notes: redis:// or SQL")
    add("--database", required=True, metavar="URL", help="the SQL database with the rows")
    add("--namespace", help="namespace of the notes, if the program sets one")
    add("--store", metavar="URL", help="event store of the program: redis:// or SQL")
    add(
        "--store-namespace",
        metavar="NAME",
        help="namespace of the event store (default: that of the notes)",
    )
    add("--history", action="store_true", help="the event store keeps all events")
    add("--to", metavar="URL", help="publish to this broker as well: stomp://HOST:PORT/queue/NAME")
    add(
        "--tables",
        action="append",
        default=[],
        metavar="GLOB",
        help="tables that the program publishes; repeatable",
    )
    add(
        "--older-than",
        type=float,
        default=60.0,
        metavar="S",
        help="skip notes younger than this many seconds, if their process cannot be "
        "checked from here (default: 60)",
    )
    add("--list", action="store_true", help="list the notes and change nothing")
    add("--json", action="store_true", help="with --list: print JSON")
    return parser


def _notes(options: argparse.Namespace, stack: ExitStack) -> PrepareCommit:
    made: PrepareCommit
    if options.notes.startswith(_REDIS):
        from stompkit.replication.eventstore import RedisPrepareCommit

        made = RedisPrepareCommit(options.notes, namespace=options.namespace)
    else:
        made = SqlPrepareCommit(options.notes, namespace=options.namespace)
    stack.callback(made.close)
    return made


def _store(options: argparse.Namespace, stack: ExitStack) -> EventStore | None:
    if options.store is None:
        return None
    made: EventStore
    more: dict[str, Any] = {"strict": True, "history": options.history}
    if options.store.startswith(_REDIS):
        from stompkit.replication.eventstore import RedisEventStore

        made = RedisEventStore(options.store, options.store_namespace, **more)
    else:
        made = SqlEventStore(options.store, options.store_namespace, **more)
    stack.callback(made.close)
    return made


def _list(stuck: list[Prepared], *, is_json: bool) -> int:
    for each in stuck:
        if is_json:
            document = {
                "id": each.id,
                "time": each.time,
                "is_committed": each.is_committed,
                "event": each.event,
            }
            print(json_line(document))
            continue
        when = datetime.fromtimestamp(each.time, UTC).isoformat(" ", "seconds")
        state = "committed" if each.is_committed else "perhaps committed"
        print(f"{each.id}  {when}  {state}")
        for name, keys in each.event.items():
            print(f"  {name}: {', '.join(map(repr, keys))}")
    if not is_json:
        print(f"{len(stuck)} to be recovered")
    return 1 if stuck else 0


def _recover(notes: PrepareCommit, options: argparse.Namespace, stack: ExitStack) -> int:
    engine = create_engine(options.database)
    stack.callback(engine.dispose)
    store = _store(options, stack)
    stack.callback(print_sub(None).close)
    if options.to is not None:
        url = BrokerUrl.parse(options.to)
        if not url.destination:
            raise ValueError(f"--to {mask_url(options.to)} names no destination")
        link = stack.enter_context(url.link())
        link.wait_connected(30.0)
        # It subscribes to the signals sent by default; the sender waits for it.
        stack.enter_context(StompSub(link, url.destination))
    run = partial(recover, notes, engine, store=store, tables=Tables(options.tables))
    done = run(older_than_s=options.older_than)
    problems = [each for each in done if each.problem]
    for each in problems:
        print(f"stompkit recover: session {each.prepared.id}: {each.problem}", file=sys.stderr)
    print(f"{len(done) - len(problems)} recovered", file=sys.stderr)
    return 1 if problems else 0
