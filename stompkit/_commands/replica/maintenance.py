"""Maintenance commands of ``stompkit replica``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from stompkit._commands.replica.options import opened
from stompkit._commands.replica.subcommand import Command
from stompkit._commands.replica.writing import writable
from stompkit._common.spelling import amount
from stompkit._common.text import shown
from stompkit.replica import generate_key
from stompkit.replica.signing import Signer

__all__ = ["COMMANDS"]


def _refused(command: str, problem: LookupError) -> int:
    print(f"stompkit replica {command}: {problem.args[0]}", file=sys.stderr)
    return 1


def _nothing(parser: argparse.ArgumentParser) -> None:
    """Add no arguments."""


def _skip(options: argparse.Namespace) -> int:
    with writable(options) as (replica, _):
        try:
            outcome = replica.skip(options.changeset)
        except LookupError as problem:
            return _refused("skip", problem)
    print(f"{options.changeset} is skipped; {amount(len(outcome.records), 'changeset')} applied")
    return 0


def _skip_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "changeset", metavar="CHANGESET", help="changeset as printed by status: bob~22aabbcc:5"
    )


def _retry(options: argparse.Namespace) -> int:
    with writable(options) as (replica, _):
        outcome = replica.retry()
        status = replica.status()
    print(f"{amount(len(outcome.records), 'changeset')} applied")
    for name, reason in status.quarantined:
        print(f"{name} stays in quarantine: {shown(reason)}")
    for table, _, reason in status.problems:
        print(f"a row of {shown(table)} is still refused: {shown(reason)}")
    return 1 if status.quarantined or status.problems else 0


def _forget(options: argparse.Namespace) -> int:
    with opened(options) as (replica, _):
        try:
            replica.forget(options.node)
        except LookupError as problem:
            return _refused("forget", problem)
    print(f"{options.node} is forgotten, until it is heard again")
    return 0


def _forget_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("node", metavar="NODE", help="origin or branch id of the node")


def _compact(options: argparse.Namespace) -> int:
    with opened(options) as (replica, _):
        done = replica.compact()
    print(
        f"{amount(done.changesets, 'changeset')} with {amount(done.octets, 'octet')} and"
        f" {amount(done.tombstones, 'deleted row')} are forgotten"
    )
    return 0


def _bootstrap(options: argparse.Namespace) -> int:
    with opened(options) as (replica, _):
        replica.bootstrap()
    print("the rows of another node will be taken when this replica is run the next time")
    return 0


def _keygen(options: argparse.Namespace) -> int:
    if options.public:
        print(Signer.load(options.file).public)
        return 0
    try:
        print(generate_key(options.file))
    except FileExistsError:
        reason = f"{options.file} is there already: --public prints its public key"
        print(f"stompkit replica keygen: {reason}", file=sys.stderr)
        return 1
    return 0


def _keygen_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="file for the private key")
    parser.add_argument(
        "--public", action="store_true", help="print the public key of an existing private key"
    )


#: The commands of this module, by name.
COMMANDS: Final = {
    "skip": Command(
        _skip_arguments,
        _skip,
        """\
The changeset counts as applied on this node, but none of its changes are. Other nodes may apply it.

  stompkit replica skip bob~22aabbcc:5 --db sqlite:///notes.db
""",
    ),
    "retry": Command(
        _nothing,
        _retry,
        """\
  stompkit replica retry --db sqlite:///notes.db

exit status: 0 all changes are applied; 1 some are not, and are printed
""",
    ),
    "forget": Command(
        _forget_arguments,
        _forget,
        """\
Changesets that only this node lacks are no longer kept for it.

  stompkit replica forget bob --db sqlite:///notes.db
""",
    ),
    "compact": Command(
        _nothing,
        _compact,
        "  stompkit replica compact --db sqlite:///notes.db --retention '30 days'\n",
        "settings",
    ),
    "bootstrap": Command(
        _nothing,
        _bootstrap,
        "  stompkit replica bootstrap --db sqlite:///notes.db\n",
    ),
    "keygen": Command(
        _keygen_arguments,
        _keygen,
        """\
Configure the public key on other nodes: --trust anna=ed25519:..., or in their files

  [trusted_keys]
  anna = "ed25519:..."

  stompkit replica keygen anna.pem
  stompkit replica run --config notes.toml --signing-key anna.pem --trust bob=ed25519:...
""",
        "nothing",
    ),
}
