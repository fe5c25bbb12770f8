"""The implementation of ``--exec`` and ``--serve``."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from textwrap import wrap

import stompkit
from stompkit._common.files import reason_of
from stompkit.conformance.case import Case
from stompkit.conformance.clients.case import ClientCase
from stompkit.conformance.clients.cases import all_cases
from stompkit.conformance.clients.client import Patience
from stompkit.conformance.clients.node import Node
from stompkit.conformance.clients.program import Process
from stompkit.conformance.clients.serving import Service
from stompkit.conformance.clients.trials import Trials
from stompkit.conformance.report.expectations import UsageError
from stompkit.conformance.report.report import Report, TargetInfo
from stompkit.conformance.report.summary import inert
from stompkit.conformance.run.progress import Progress
from stompkit.conformance.run.session import INTERRUPTED
from stompkit.conformance.run.signals import hold_signals
from stompkit.conformance.target import UnreachableError
from stompkit.conformance.verdict import CaseResult

__all__ = ["check_client_options", "client_cases", "run_on_client"]

#: Options about servers, with their defaults.
_OF_SERVERS = {
    "mq": None,
    "broker": None,
    "restart": None,
    "stop": None,
    "start": None,
    "one_store": False,
    "login": None,
    "vhost": None,
    "cases": None,
    "no_ack": False,
    "no_receipts": False,
    "require": (),
}
_WIDTH = 80


def check_client_options(options: argparse.Namespace) -> None:
    """Raise :class:`UsageError` for options that cannot be combined with those about clients."""
    if options.exec is None and not options.serve:
        for name, hint in (("port", ": a server is tested by --mq HOST:PORT"), ("name", "")):
            if getattr(options, name) is not None:
                raise UsageError(f"--{name} goes with --serve or --exec{hint}")
        return
    for name, default in _OF_SERVERS.items():
        if getattr(options, name) != default:
            flag = name.replace("_", "-")
            raise UsageError(f"--{flag} is about a server, --serve and --exec test a client")
    if options.exec is not None and options.port is not None:
        raise UsageError("--port goes with --serve alone: --exec tells the program which port")


def _check_host(host: str) -> None:
    """Raise :class:`UsageError` if it is impossible to listen on that host."""
    try:
        Node(host).close()
    except OSError as error:
        raise UsageError(f"--host: cannot wait for clients at {host!r}: {error}") from None


def client_cases() -> list[Case]:
    """Return all cases about clients."""
    return [each.case for each in all_cases()]


def run_on_client(options: argparse.Namespace, cases: Sequence[Case]) -> Report:
    """Run cases on a client; raises :class:`UnreachableError` if none connects."""
    ids = {case.id for case in cases}
    chosen = [each for each in all_cases() if each.id in ids]
    patience = Patience(options.timeout, options.quiet_time)
    _check_host(options.host)
    began = time.monotonic()
    started = datetime.now(UTC).isoformat(timespec="seconds")
    found = (_run if options.exec is not None else _serve)(options, chosen, patience)
    order = {case.id: place for place, case in enumerate(cases)}
    return Report(
        suite_version=stompkit.__version__,
        target=TargetInfo(
            address=found.address, server=_name(options), versions=list(found.versions)
        ),
        started=started,
        duration_s=round(time.monotonic() - began, 3),
        complete=not found.cut_short,
        cut_short=found.cut_short,
        selected=len(cases),
        results=sorted(found.results, key=lambda result: order[result.id]),
        errors=list(found.errors),
    )


@dataclass(frozen=True, slots=True)
class _Found:
    """The results of a run."""

    address: str
    versions: Sequence[str]
    results: Sequence[CaseResult]
    errors: Sequence[str]
    cut_short: str


def _name(options: argparse.Namespace) -> str:
    """Return the name of the client: the user's, or that of the program's file."""
    if options.name is not None or options.exec is None:
        return options.name or ""
    words = [word for word in options.exec if "{" not in word and not word.startswith("-")]
    files = [word for word in words[1:] if Path(word).is_file()]
    return Path((files or words[-1:])[0]).name


# --exec


def _run(options: argparse.Namespace, cases: Sequence[ClientCase], patience: Patience) -> _Found:
    command = shlex.join(options.exec)
    _say(f"Client  {_name(options)}", f"Runs    {command}", f"Cases   {len(cases)}")
    progress = Progress(sys.stdout, len(cases))
    trials = Trials(
        lambda call: Process(options.exec, call),
        host=options.host,
        patience=patience,
        jobs=options.jobs,
        on_case=progress.case,
        on_result=progress.result,
    )
    cut_short = ""
    try:
        trials.run(cases)
        hold_signals()
    except KeyboardInterrupt:
        cut_short = INTERRUPTED
    except UnreachableError as error:
        raise UnreachableError(f"no STOMP client: {error}") from None
    finally:
        progress.end()
    return _Found(command, trials.versions, trials.results, trials.errors, cut_short)


# --serve


def _serve(options: argparse.Namespace, cases: Sequence[ClientCase], patience: Patience) -> _Found:
    try:
        service = Service(
            cases,
            host=options.host,
            first_port=options.port or 0,
            patience=patience,
            on_result=_tell,
        )
    except (OSError, OverflowError) as error:
        last = (options.port or 0) + sum(each.nodes for each in cases) - 1
        raise UsageError(
            f"--port: ports {options.port} to {last} are needed, and one of them cannot be listened"
            f" on: {reason_of(error).rstrip('.')}. Choose others."
        ) from None
    with service:
        width = max(len(_ports(place.nodes)) for place in service.places)
        try:
            for place in service.places:
                print(f"{_ports(place.nodes):<{width}}  {place.case.id}")
            _say(
                f"Connect to {options.host} at these ports, a client for each case. Ctrl-C ends it."
            )
            service.serve()
            hold_signals()
        except KeyboardInterrupt:
            print(flush=True)
    missing = len(cases) - len(service.results)
    if not service.results and not service.errors:
        raise UnreachableError("no client has connected")
    first, last = service.places[0].nodes[0].port, service.places[-1].nodes[-1].port
    return _Found(
        f"clients of {options.host}:{first}-{last}",
        service.versions,
        service.results,
        service.errors,
        f"no client has connected for the other {missing}" if missing else "",
    )


def _ports(nodes: Sequence[Node]) -> str:
    return ",".join(str(node.port) for node in nodes)


def _tell(result: CaseResult) -> None:
    """Print a verdict as soon as it is known."""
    _say(f"{result.verdict:<13} {result.id}")
    if result.detail:
        print(
            "\n".join(
                inert(line)
                for line in wrap(
                    result.detail, _WIDTH, initial_indent="    ", subsequent_indent="      "
                )
            )
        )
    sys.stdout.flush()


def _say(*lines: str) -> None:
    for line in lines:
        print("\n".join(map(inert, wrap(line, _WIDTH, subsequent_indent=" " * 8))))
    sys.stdout.flush()
