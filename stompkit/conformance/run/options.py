"""The command line of ``python -m stompkit.conformance``."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from stompkit._common.arguments import Parser
from stompkit._common.secrets import SecretError, first_line
from stompkit.conformance.run.values import (
    LEVELS,
    addresses,
    broker,
    count,
    expectations,
    expectations_shipped,
    folder,
    jobs,
    levels,
    port,
    program,
    report_file,
    seconds,
    template,
    value,
)
from stompkit.testing import BROKERS

__all__ = ["parser"]

_DESCRIPTION = """\
Tests a STOMP server against the statements of the STOMP 1.0, 1.1 and 1.2
specifications, from raw sockets. Without --mq a stompkit broker is started,
tested and stopped. "merge --help" tells how to make one report of several.
With --exec or --serve it tests clients instead.
"""

_EPILOG = """\
verdicts:
  OK             as the specification says
  NON-STRICT     a recommendation (SHOULD) is not followed
  FAILED         the specification is broken
  UNSUPPORTED    the target does not have what the case is about
  INFORMATIONAL  left open by the specification; the report's notes say what was
                 seen

exit status:
  0    everything is as expected
  1    a case failed unexpectedly, or came out better than --expect says
  2    wrong usage, or no case selected
  3    no STOMP server answers, or it stopped answering
  4    the suite itself is broken
  130  somebody pressed Ctrl-C

examples:
  python -m stompkit.conformance
  python -m stompkit.conformance --mq localhost:61613 --html report.html 1.2/ack
  python -m stompkit.conformance --mq localhost:61613 --login guest --vhost /
  python -m stompkit.conformance --list --level MUST 1.1/heartbeat
  python -m stompkit.conformance --exec './agent {host} {port} {case}'
  python -m stompkit.conformance merge a.json b.json --html table.html
"""

#: Types of reports, with their purpose.
_REPORTS = {
    "json": "everything, with the wire log of each case",
    "junit": "for build servers",
    "html": "one page for people, with the wire log of each case",
    "markdown": "a table by chapter and what failed, for pull requests",
    "badge": "the number of cases that did not fail, for a badge of shields.io",
}


def parser() -> argparse.ArgumentParser:
    """Return the parser."""
    made = Parser(
        prog="python -m stompkit.conformance",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument(
        "include",
        nargs="*",
        metavar="CASE",
        help="ids of cases, or of requirements that they cover, patterns (1.?/send/*), or"
        " beginnings (1.2/ack); default: all",
    )
    _add_target(made)
    _add_client(made)
    _add_selection(made)
    _add_judgement(made)
    group = made.add_argument_group("reports")
    for name, what in _REPORTS.items():
        group.add_argument(f"--{name}", metavar="FILE", type=report_file, help=f"write {what}")
    group.add_argument(
        "--profile",
        action="store_true",
        help="print the profile, too: what the target does where it has a choice; reports have it"
        " in any case",
    )
    group.add_argument(
        "--schema", action="store_true", help="print the JSON Schema of --json and stop"
    )
    return made


def _passcode_in(path: str) -> str:
    """Return the passcode in the first line of a file."""
    try:
        return value(first_line(Path(path)))
    except SecretError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _add_target(made: argparse.ArgumentParser) -> None:
    target = made.add_argument_group("target")
    target.add_argument(
        "--mq",
        metavar="HOST:PORT",
        type=addresses,
        help="the server to test; stomps://HOST:PORT?ca=FILE where it speaks TLS, ws://HOST:PORT/PATH"
        " or wss:// where STOMP goes over WebSockets; HOST:PORT,HOST:PORT for one that has several"
        " nodes",
    )
    target.add_argument(
        "--broker",
        "--mq-broker",
        metavar="NAME",
        type=broker,
        help=f"launch a broker and test that: {', '.join(BROKERS)}, some in a version, as in"
        " rabbitmq:4, or command:CMD (default: stompkit, where there is no --mq)",
    )
    target.add_argument(
        "--restart",
        metavar="CMD",
        type=value,
        help="a command that restarts the server at --mq, for the cases about what survives that",
    )
    for does, what in (("stop", "ends a node"), ("start", "starts it again")):
        target.add_argument(
            f"--{does}",
            metavar="CMD",
            type=value,
            help=f"a command that {what}, for the cases about fail-over: its environment has"
            " STOMPKIT_NODE (from 1), STOMPKIT_HOST and STOMPKIT_PORT, as at --mq",
        )
    target.add_argument(
        "--one-store",
        action="store_true",
        help="the nodes share a store, or copy theirs to each other: what is lost between them is"
        " NON-STRICT, a failure with --strict (default: the suite tries whether they do)",
    )
    target.add_argument(
        "--no-ack",
        action="store_true",
        help="the server does not know ACK: cases that need it are UNSUPPORTED",
    )
    target.add_argument(
        "--no-receipts",
        action="store_true",
        help="the server answers no receipts: cases about them are UNSUPPORTED, the others wait for"
        " a message to themselves instead",
    )
    target.add_argument(
        "--login", "--mq-login", metavar="NAME", type=value, help="login for CONNECT"
    )
    target.add_argument(
        "--passcode",
        "--mq-passcode",
        metavar="WORD",
        type=value,
        default=os.environ.get("STOMPKIT_MQ_PASSCODE"),
        help="passcode for CONNECT; STOMPKIT_MQ_PASSCODE in the environment keeps it out of"
        " process lists",
    )
    target.add_argument(
        "--passcode-file",
        dest="passcode",
        metavar="FILE",
        type=_passcode_in,
        help="file with the passcode for CONNECT, in its first line",
    )
    target.add_argument(
        "--vhost",
        "--mq-vhost",
        metavar="NAME",
        type=value,
        help="host header of CONNECT (default: HOST)",
    )
    for kind in ("queue", "topic"):
        target.add_argument(
            f"--{kind}-template",
            metavar="NAME",
            type=template,
            default=f"/{kind}/{{}}",
            help=f"how the server names a {kind}; {{}} stands for a word (default: %(default)s)",
        )


def _add_client(made: argparse.ArgumentParser) -> None:
    client = made.add_argument_group("clients")
    client.add_argument(
        "--exec",
        metavar="CMD",
        type=program,
        help="test a client: run this program against each case, with {host}, {port} and {case}"
        " replaced; docs/howto/conformance-clients.rst says what it has to do",
    )
    client.add_argument(
        "--serve",
        action="store_true",
        help="test clients that somebody else runs: wait for them, on a port for each case",
    )
    client.add_argument(
        "--host",
        metavar="ADDRESS",
        type=value,
        default="127.0.0.1",
        help="where to wait for clients (default: %(default)s)",
    )
    client.add_argument(
        "--port",
        metavar="NUMBER",
        type=port,
        help="the first port of --serve, the others follow it (default: any that are free)",
    )
    client.add_argument(
        "--name",
        metavar="NAME",
        type=value,
        help="what reports call the client, such as stomp.py/9.0.0 (default: the program's file)",
    )


def _add_selection(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group("selection")
    group.add_argument("--list", action="store_true", help="list the cases and stop")
    group.add_argument(
        "--exclude", metavar="CASE", action="append", default=[], help="leave these out"
    )
    group.add_argument(
        "--level",
        metavar="LEVEL",
        type=levels,
        default=(),
        help=f"only cases of these levels: {LEVELS}, comma-separated",
    )
    group.add_argument(
        "--cases",
        metavar="FOLDER",
        type=folder,
        help="take the cases from this folder instead of those that come with the suite",
    )


def _add_judgement(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group("judgement")
    group.add_argument("--strict", action="store_true", help="NON-STRICT is a failure, too")
    known = ", ".join(expectations_shipped())
    lists = group.add_mutually_exclusive_group()
    lists.add_argument(
        "--expect",
        metavar="FILE",
        type=expectations,
        help="deviations that are known: a TOML file, or the name of one that comes with the"
        f" suite ({known})",
    )
    lists.add_argument(
        "--update-baseline",
        metavar="FILE",
        type=report_file,
        help="take such a file, if it exists, and then write into it what this run has found",
    )
    group.add_argument(
        "--jobs",
        metavar="NUMBER",
        type=jobs,
        default=4,
        help="how many cases may run at the same time; those of failover and robustness run alone"
        " (default: %(default)s)",
    )
    group.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=seconds,
        default=3.0,
        help="how long to wait for an answer (default: %(default)s)",
    )
    group.add_argument(
        "--quiet-time",
        metavar="SECONDS",
        type=seconds,
        default=0.5,
        help="how long to wait before nothing counts as nothing (default: %(default)s)",
    )
    group.add_argument(
        "--fuzz",
        metavar="NUMBER",
        type=count,
        default=300,
        help="how many sessions with random faults robustness/fuzzing tries (default: %(default)s)",
    )
    group.add_argument(
        "--seed",
        metavar="NUMBER",
        type=count,
        default=0,
        help="what these faults are made of: the same number makes the same (default: %(default)s)",
    )
