"""``stompkit bridge``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Final

from stompkit._common.arguments import Parser
from stompkit._common.metrics import parse_address
from stompkit.bridge import BridgeError, BridgeSettings, load, parse, site_name

__all__ = ["main", "parser"]

_EPILOG: Final = """\
Messages of queues are moved, messages of topics are copied. A message is acknowledged to the source
after the destination has confirmed it, or with --buffer after it is written to disk. So no message
is lost if a process is killed. Duplicates have the same header stompkit-bridge-id. The header
stompkit-hops lists the sites that a message has passed; it is not forwarded to these again.

  stompkit bridge --from stomp://branch --to stomp://head --queue orders --queue returns
  stompkit bridge --from stomp://branch --to env:HEAD_URL --queue orders --buffer /var/lib/bridge
  stompkit bridge --from stomp://head --to stomp://branch --topic prices --both-ways
  stompkit bridge --config /etc/stompkit/bridge.toml --check
  stompkit bridge --config /etc/stompkit/bridge.toml --status

The URL of a broker is stomp://LOGIN:PASSCODE@HOST:PORT,HOST:PORT, or stomps:// for TLS; several
hosts are used for failover. env:NAME takes the URL from an environment variable, file:PATH from the
first line of a file, so that other users of the machine cannot read a passcode.

The file of --config is TOML. The manual describes all keys, under bridges:

  name = "shop"
  status = "/run/stompkit/bridge.json"

  [sites.branch]
  url = "stomp://localhost:61613"
  [sites.head]
  url = "env:HEAD_URL"

  [[routes]]
  from = "branch"
  to = "head"
  queues = ["/queue/orders"]
  destination = "/queue/{site}.{name}"
  buffer = "/var/lib/stompkit/bridge"

SIGTERM or SIGINT (Ctrl-C) stops the bridge after outstanding messages are confirmed.

exit status: 0 stopped by a signal; 1 a route stopped, with the reason on standard error; 2 wrong
command line or configuration file; with --status 1 if the bridge is not running or a route stopped
"""

_USAGE: Final = 2


def main(arguments: list[str]) -> int:
    """Run a bridge, or print its status."""
    options = parser().parse_args(arguments)
    try:
        if options.status:
            return _status(options)
        settings = _settings(options)
    except BridgeError as problem:
        for line in str(problem).splitlines():
            print(f"stompkit bridge: {line}", file=sys.stderr)
        return _USAGE
    if options.check:
        for leg in settings.legs:
            kept = f", buffered in {leg.buffer}" if leg.buffer is not None else ""
            listed = ", ".join(leg.destinations)
            print(f"{leg.name}: {listed} of {leg.source.name} to {leg.to.name}{kept}")
        return 0
    from stompkit._commands.bridge.run import run

    return run(settings, quiet=options.quiet, verbose=options.verbose)


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = Parser(
        prog="stompkit bridge",
        usage="stompkit bridge --config FILE | --from URL --to URL --queue NAME ... [options]",
        description="Forward messages between brokers, with an optional disk buffer.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--config", type=Path, metavar="FILE", help="file with sites and routes, TOML")
    add("--check", action="store_true", help="check the configuration, print its routes, and exit")
    add("--status", action="store_true", help="print the status of a running bridge and exit")
    add("--json", action="store_true", help="with --status: print JSON")
    add("--status-file", metavar="FILE", help="file for the status of the bridge")
    add(
        "--metrics-port",
        "--metrics",
        dest="metrics",
        metavar="[HOST:]PORT",
        help="serve Prometheus metrics at this address",
    )
    add("--quiet", action="store_true", help="print only routes that stop")
    add("--verbose", action="store_true", help="write a detailed log to standard error")
    group = parser.add_argument_group("one route, without a file")
    add = group.add_argument
    add("--from", dest="source", metavar="URL", help="the source broker")
    add("--to", metavar="URL", help="the destination broker")
    add(
        "--from-site",
        metavar="NAME",
        help="name of the source in hop lists (default: its host and port)",
    )
    add(
        "--to-site",
        metavar="NAME",
        help="name of the destination in hop lists (default: its host and port)",
    )
    add(
        "--queue",
        action="append",
        default=[],
        metavar="NAME",
        help="move the messages of this queue; repeatable",
    )
    add(
        "--topic",
        action="append",
        default=[],
        metavar="NAME",
        help="copy the messages of this topic; repeatable",
    )
    add(
        "--channel",
        action="append",
        default=[],
        metavar="NAME",
        help="forward a replication channel in both directions: topic NAME, and NAME.> of "
        "its nodes; repeatable",
    )
    add(
        "--destination",
        metavar="TEMPLATE",
        help="template of the destination name with {destination}, {site}, {name}, ... "
        "(default: {destination})",
    )
    add("--both-ways", action="store_true", help="topics: copy in both directions")
    add(
        "--buffer",
        metavar="DIR",
        help="store messages in this directory while they cannot be forwarded",
    )
    add("--selector", metavar="TEXT", help="forward only messages that match this selector")
    add(
        "--refused",
        metavar="NAME",
        help="destination at the source for messages that the target refuses; without it "
        "the route stops",
    )
    add(
        "--window",
        type=int,
        metavar="N",
        help="maximum number of unconfirmed messages (default: 100)",
    )
    add("--no-durable", action="store_true", help="topics: use no durable subscriptions")
    return parser


def _settings(options: argparse.Namespace) -> BridgeSettings:
    is_simple = any((options.source, options.to, options.queue, options.topic, options.channel))
    if options.config is not None:
        if is_simple:
            raise BridgeError("--config or --from, --to and destinations, not both")
        settings = load(options.config)
    elif not is_simple:
        raise BridgeError("--config FILE is missing, or --from URL, --to URL and --queue NAME")
    else:
        settings = parse(_simple(options))
    found = _overrides(options)
    return BridgeSettings(
        name=settings.name,
        legs=settings.legs,
        status=found.get("status", settings.status),
        metrics=found.get("metrics", settings.metrics),
    )


def _overrides(options: argparse.Namespace) -> dict[str, Any]:
    """Return the command-line values that override the file; raises :class:`BridgeError`."""
    found: dict[str, Any] = {}
    if options.status_file:
        found["status"] = Path(options.status_file)
    if options.metrics:
        try:
            found["metrics"] = parse_address(options.metrics)
        except ValueError as error:
            raise BridgeError(f"--metrics: {error}") from None
    return found


def _simple(options: argparse.Namespace) -> dict[str, Any]:
    """Return the equivalent tables of a configuration file."""
    if not options.source or not options.to:
        raise BridgeError("--from URL and --to URL are needed both")
    names: list[str] = []
    sites: dict[str, Any] = {}
    for option, url, name in (
        ("--from", options.source, options.from_site),
        ("--to", options.to, options.to_site),
    ):
        own = name or _site_name(option, url)
        if own in sites:
            raise BridgeError(f"both sites are called {own}: use --from-site and --to-site")
        names.append(own)
        sites[own] = {"url": url}
    if options.channel and (options.queue or options.destination):
        raise BridgeError(
            "--channel goes both ways, under the same names: without --queue and --destination"
        )
    channels = [_named("/topic/", each) for each in options.channel]
    route: dict[str, Any] = {
        "name": "route",
        "from": names[0],
        "to": names[1],
        "queues": [_named("/queue/", each) for each in options.queue],
        "topics": [
            *(_named("/topic/", each) for each in options.topic),
            *(name for each in channels for name in (each, f"{each}.>")),
        ],
        "both_ways": options.both_ways or bool(channels),
        "durable": not options.no_durable,
    }
    for key in ("destination", "buffer", "selector", "refused", "window"):
        if (value := getattr(options, key)) is not None:
            route[key] = value
    return {"sites": sites, "routes": [route]}


def _site_name(option: str, url: str) -> str:
    try:
        return site_name(url)
    except ValueError as error:
        raise BridgeError(f"{option}: {error}") from None


def _named(prefix: str, name: str) -> str:
    return name if name.startswith("/") else prefix + name


def _status(options: argparse.Namespace) -> int:
    from stompkit._commands.bridge.status import print_status

    path = Path(options.status_file) if options.status_file else None
    if path is None and options.config is not None:
        path = load(options.config).status
    if path is None:
        raise BridgeError("--status needs --status-file FILE, or a file with the key status")
    return print_status(path, as_json=options.json)
