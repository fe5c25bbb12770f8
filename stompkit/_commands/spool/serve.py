"""Serves a spool to readers on other machines, for ``stompkit spool serve`` and ``run --serve``."""

from __future__ import annotations

import argparse
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from stompkit._commands.shared.signals import signalled
from stompkit._commands.spool.options import SpoolUsageError
from stompkit._common.metrics import Address
from stompkit.spool.serving.server import spool_server

__all__ = ["serve", "served_at"]


def serve(options: argparse.Namespace) -> int:
    """Serve until a signal.

    Raises :class:`SpoolUsageError` and :class:`~stompkit.spool.SpoolError`.
    """
    check_serving(options, options.listen)
    with signalled() as end, served_at(options, options.listen) as url:
        if not options.quiet:
            print(f"serves {options.directory} at {url}", file=sys.stderr, flush=True)
        select.select([end], [], [])
    return 0


def check_serving(options: argparse.Namespace, address: Address | None) -> None:
    """Raise :class:`SpoolUsageError` if the options of the server do not go together."""
    if address is None:
        if options.token_file is not None or options.certificate is not None:
            raise SpoolUsageError("--token-file and --certificate are for --serve")
    elif options.token_file is None:
        raise SpoolUsageError(
            "--token-file is missing: readers need a token. Create one: openssl rand -hex 32 > FILE"
        )


@contextmanager
def served_at(options: argparse.Namespace, address: Address) -> Iterator[str]:
    """Serve at an address; yields the URL for readers."""
    with spool_server(
        options.directory,
        address,
        token_file=options.token_file,
        certificate=options.certificate,
    ) as found:
        yield f"{'http' if options.certificate is None else 'https'}://{found}"
