"""``stompkit serve``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TextIO, cast

from twisted.logger import globalLogBeginner
from twisted.python.usage import UsageError

from stompkit._commands.shared.signals import end_by_signals
from stompkit._common.addresses import host_port
from stompkit._common.arguments import Parser
from stompkit._common.twisted.stopping import stop_reactor
from stompkit._pure import slowness
from stompkit.server.tap import BrokerService, Options, makeService

__all__ = ["main", "parser"]

_DESCRIPTION: Final = """\
Run a broker in the foreground, until it is interrupted.

At start it prints its addresses, the URL of the console, and the location of stored messages.
The options are those of `twist stompkit`. The file of --config has all other settings.
"""
_EPILOG: Final = """\
  stompkit serve                                            in memory, on the loopback interface
  stompkit serve --data ./data --admin tcp:15613:interface=127.0.0.1
  stompkit serve --config /etc/stompkit.toml --log-format json

Warnings, errors and the frames of --log-frames go to standard error. `twistd stompkit`, with the
same options, runs the broker in the background.

exit status: 0 stopped; 1 failed, with the reason on standard error; 2 wrong command line
"""
_USAGE: Final = 2
#: Placeholders of option values, and the repeatable options.
_METAVARS: Final = {
    "config": "FILE",
    "data": "DIRECTORY",
    "sync": "WHEN",
    "lock-timeout": "SECONDS",
    "announce": "FILE",
    "heart-beat": "MS,MS",
    "max-connections": "N",
    "max-body": "BYTES",
    "prefetch": "N",
    "log-format": "FORMAT",
}
#: Options of other servers, with what replaces them.
_OTHERS: Final = dict.fromkeys(
    ("--port", "--host", "--bind", "--listen"),
    "--endpoint tcp:PORT, or tcp:PORT:interface=127.0.0.1 for this machine only",
)
_REPEATED: Final = {
    "endpoint": "ENDPOINT",
    "admin": "ENDPOINT",
    "websocket": "ENDPOINT",
    "allow-origin": "ORIGIN",
    "beanstalk": "ENDPOINT",
    "auth": "CHECKER",
}


def parser() -> argparse.ArgumentParser:
    """Return a parser with the options of the broker's Twisted plug-in."""
    made = Parser(
        prog="stompkit serve",
        usage="stompkit serve [options]",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.others = _OTHERS
    for name, _, _, text in Options.optParameters:
        made.add_argument(f"--{name}", metavar=_METAVARS[str(name)], help=_percent(text))
    for name, _, text in Options.optFlags:
        made.add_argument(f"--{name}", action="store_true", help=_percent(text))
    for name, metavar in _REPEATED.items():
        text = getattr(Options, f"opt_{name.replace('-', '_')}").__doc__
        help_text = _percent(" ".join(text.split()))
        made.add_argument(f"--{name}", action="append", default=[], metavar=metavar, help=help_text)
    made.add_argument("--help-auth", action="store_true", help="list the kinds of --auth")
    made.add_argument("--help-auth-type", metavar="TYPE", help="describe one kind of --auth")
    return made


def _percent(text: str | None) -> str:
    return (text or "").replace("%", "%%")


def main(arguments: list[str]) -> int:
    """Run the broker; returns the exit status."""
    parser().parse_args(arguments)
    options = Options()
    try:
        options.parseOptions(arguments)  # type: ignore[no-untyped-call]  # Twisted's
    except UsageError as error:
        return _report(error, _USAGE)
    except SystemExit as end:
        return 0 if end.code in (None, 0) else _report(end, 1)
    return _serve(options)


def _report(reason: object, status: int) -> int:
    """Print a reason, line by line."""
    for line in str(reason).splitlines():
        print(f"stompkit serve: {line.removeprefix('stompkit: ')}", file=sys.stderr)
    return status


def _serve(options: Options) -> int:
    from twisted.internet import reactor as installed

    reactor = cast("Any", installed)
    try:
        _begin_log(options)
        service = makeService(options)
        service.lifecycle.when_listening = lambda: _greet(service, sys.stdout)
        service.startService()
    except SystemExit as end:
        return _report(end, 1)
    if service.lifecycle.trouble is not None:
        print(f"stompkit serve: not ready: {service.lifecycle.trouble}", file=sys.stderr)
    reactor.addSystemEventTrigger("before", "shutdown", service.stopService)
    # Twisted's own handlers log an error if a second signal comes while the broker stops.
    end_by_signals(lambda: reactor.callFromThread(stop_reactor, reactor))
    reactor.run(installSignalHandlers=False)
    return 0


def _begin_log(options: Options) -> None:
    """Log to standard error, or to the file of [log].

    Without a file, the format JSON, or frames, that is warnings, errors and refused clients.
    """
    log, wanted = options["log"], options["settings"].log
    # A program that reads JSON wants all events; a person at a terminal wants the greeting.
    is_brief = wanted.file is None and wanted.format != "json" and not wanted.frames
    observer = log.terminal_observer(sys.stderr) if is_brief else log.observer(sys.stderr)
    globalLogBeginner.beginLoggingTo([observer], redirectStandardIO=False)


# Messages.


def _greet(service: BrokerService, to: TextIO) -> None:
    """Print the broker's addresses and the location of the messages."""
    lifecycle = service.lifecycle
    announced = lifecycle.announcement()
    for name, what in _SPOKEN.items():
        for place in cast("Sequence[Mapping[str, Any]]", announced.get(name, ())):
            print(f"{what + ':':<11} {_address(place)}", file=to)
    consoles = cast("Sequence[Mapping[str, Any]]", announced.get("admin", ()))
    for place, endpoint in zip(consoles, lifecycle.settings.admin.endpoints, strict=True):
        print(f"{'console:':<11} {_url(place, endpoint)}", file=to)
    store = lifecycle.settings.store
    if store.path is not None:
        where = str(Path(store.path).absolute())
    elif store.has_store:
        where = "in the database of [store]"
    else:
        where = "in memory, and gone with the broker; --data DIRECTORY keeps messages"
    print(f"{'data:':<11} {where}", file=to)
    slow = slowness()
    if slow is not None:
        print(f"{'speed:':<11} {slow}", file=to)
    print("Press Ctrl-C to end.", file=to, flush=True)


#: Prefixes of the descriptions of TLS endpoints.
_WITH_TLS: Final = ("ssl:", "stomps:")
_SPOKEN: Final = {"endpoints": "STOMP", "websocket": "WebSocket", "beanstalk": "beanstalk"}


def _address(place: Mapping[str, Any]) -> str:
    if "path" in place:
        return f"unix:{place['path']}"
    return host_port(place["host"], place["port"])


def _url(place: Mapping[str, Any], endpoint: str) -> str:
    if "path" in place:
        return f"unix:{place['path']}"
    # A wildcard address is not one that a browser can open.
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(place["host"], place["host"])
    scheme = "https" if endpoint.startswith(_WITH_TLS) else "http"
    return f"{scheme}://{_address({**place, 'host': host})}/"
