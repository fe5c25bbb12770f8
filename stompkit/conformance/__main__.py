"""The command ``python -m stompkit.conformance``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn, get_args

from stompkit.conformance import expectations as known
from stompkit.conformance._html import to_html
from stompkit.conformance._progress import Progress
from stompkit.conformance.case import Case
from stompkit.conformance.report import (
    Report,
    TargetInfo,
    header_lines,
    summary_lines,
    to_json,
    to_junit,
    write,
)
from stompkit.conformance.requirements import Level
from stompkit.conformance.runner import (
    Exit,
    HarnessError,
    Selection,
    all_cases,
    cases_folder,
    exit_of,
    run,
)
from stompkit.conformance.target import Address, Unreachable, probe
from stompkit.testing import BrokerError, LaunchConfig, launch

__all__ = ["main"]

_DESCRIPTION = """\
Tests a STOMP server against the statements of the STOMP 1.0, 1.1 and 1.2
specifications, from raw sockets. Without --mq a stompkit broker is started, tested
and stopped.
"""

_EPILOG = """\
verdicts:
  OK             as the specification says
  NON-STRICT     a recommendation (SHOULD) is not followed
  FAILED         the specification is broken
  UNSUPPORTED    the target does not have what the case is about
  INFORMATIONAL  left open by the specification; the report's notes say what was seen

exit status:
  0  everything is as expected        3  no STOMP server answers, or it stopped answering
  1  a case failed unexpectedly       4  the suite itself is broken
  2  wrong usage, or no case selected

examples:
  python -m stompkit.conformance
  python -m stompkit.conformance --mq localhost:61613 --login guest --passcode guest --vhost /
  python -m stompkit.conformance --mq localhost:61613 --html report.html '1.2/ack*'
  python -m stompkit.conformance --list --level MUST 1.1/heartbeat
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m stompkit.conformance",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "cases",
        nargs="*",
        metavar="CASE",
        help="ids of cases, patterns (1.?/send/*), or beginnings (1.2/ack); default: all",
    )
    target = parser.add_argument_group("target")
    target.add_argument("--mq", metavar="HOST:PORT", type=_address, help="the server to test")
    target.add_argument("--login", "--mq-login", metavar="NAME", help="login for CONNECT")
    target.add_argument(
        "--passcode",
        "--mq-passcode",
        metavar="WORD",
        help="passcode for CONNECT; STOMPKIT_MQ_PASSCODE in the environment keeps it out of"
        " process lists",
    )
    target.add_argument(
        "--vhost", "--mq-vhost", metavar="NAME", help="host header of CONNECT (default: HOST)"
    )
    for kind in ("queue", "topic"):
        target.add_argument(
            f"--{kind}-template",
            metavar="NAME",
            type=_template,
            default=f"/{kind}/{{}}",
            help=f"how the server names a {kind}; {{}} stands for a word (default: %(default)s)",
        )
    _add_selection(parser)
    _add_output(parser)
    return parser


def _add_selection(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("selection and judgement")
    group.add_argument("--list", action="store_true", help="list the cases and stop")
    group.add_argument(
        "--exclude", metavar="CASE", action="append", default=[], help="leave these out"
    )
    group.add_argument(
        "--level",
        metavar="LEVEL",
        type=_levels,
        default=(),
        help="only cases of these levels: MUST, FACT, SHOULD, MAY, comma-separated",
    )
    group.add_argument("--strict", action="store_true", help="NON-STRICT is a failure, too")
    group.add_argument(
        "--expect",
        metavar="FILE",
        type=_expectations_path,
        help="deviations that are known: a TOML file, or the name of one that comes with the"
        f" suite ({', '.join(_names_of_expectations())})",
    )
    group.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=_seconds,
        default=3.0,
        help="how long to wait for an answer (default: %(default)s)",
    )
    group.add_argument(
        "--quiet-time",
        metavar="SECONDS",
        type=_seconds,
        default=0.5,
        help="how long to wait before nothing counts as nothing (default: %(default)s)",
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("reports")
    for name, what in (
        ("json", "everything, with the wire log of each case"),
        ("junit", "for build servers"),
        ("html", "one page for people, with the wire log of each case"),
    ):
        group.add_argument(f"--{name}", metavar="FILE", type=Path, help=f"write {what}")


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if (":" in host and not bracketed) or not host.strip("[]"):
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT, as in localhost:61613")
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        raise argparse.ArgumentTypeError(f"{port!r} is not a port: 1 to 65535")
    return host.strip("[]"), int(port)


def _template(text: str) -> str:
    if text.count("{}") != 1 or text.replace("{}", "").count("{"):
        raise argparse.ArgumentTypeError(f"{text!r} needs one {{}} for the name")
    return text


def _levels(text: str) -> tuple[Level, ...]:
    chosen = tuple(level for level in get_args(Level) if level in text.upper().split(","))
    unknown = set(text.upper().split(",")) - set(chosen)
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown level {sorted(unknown)[0]!r}")
    return chosen


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 3_600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return seconds


def _names_of_expectations() -> list[str]:
    try:
        return sorted(path.stem for path in (cases_folder() / "brokers").glob("*.toml"))
    except HarnessError:
        return []


def _expectations_path(text: str) -> Path:
    if text in _names_of_expectations():
        return cases_folder() / "brokers" / f"{text}.toml"
    return Path(text)


@contextmanager
def _target(options: argparse.Namespace) -> Iterator[Address]:
    """The address of the server given, or of one of ours for the time being."""
    common = {
        "queue_template": options.queue_template,
        "topic_template": options.topic_template,
        "timeout_s": options.timeout,
        "quiet_s": options.quiet_time,
    }
    passcode = options.passcode or os.environ.get("STOMPKIT_MQ_PASSCODE")
    if options.mq is not None:
        host, port = options.mq
        yield Address(host, port, options.login, passcode, options.vhost, **common)
        return
    print("No --mq: starting a stompkit broker.", flush=True)
    with launch(LaunchConfig(name="stompkit")) as broker:
        vhost = options.vhost or broker.vhost
        yield Address(broker.host, broker.port, options.login, passcode, vhost, **common)


def _print_list(cases: list[Case]) -> None:
    for each in cases:
        print(f"{each.level:<7}{each.id}")
    print(f"{len(cases)} cases")


def _write_reports(options: argparse.Namespace, report: Report) -> None:
    for path, make in (
        (options.json, to_json),
        (options.junit, to_junit),
        (options.html, to_html),
    ):
        if path is not None:
            write(path, make(report))
            print(f"wrote {path}")


def _test(options: argparse.Namespace, selection: Selection) -> Exit:
    cases = all_cases(selection)
    if not cases:
        return _stop(Exit.USAGE, "no case is selected; --list shows what there is")
    expected = known.load(options.expect) if options.expect is not None else None
    if expected is not None:
        known.check(expected, [each.id for each in all_cases(Selection())])
    with _target(options) as address:
        capabilities = probe(address)
        info = TargetInfo(
            address=f"{address.host}:{address.port}",
            server=capabilities.server,
            versions=list(capabilities.versions),
        )
        print("\n".join(header_lines(info, len(cases))), flush=True)
        progress = Progress(sys.stdout, len(cases))
        report = run(address, capabilities, selection, on_result=progress.result)
        progress.end()
    if expected is not None:
        report.better_than_expected = known.compare(report.results, expected)
    print("\n".join(summary_lines(report, strict=options.strict)))
    _write_reports(options, report)
    return exit_of(report, strict=options.strict)


def _stop(status: Exit, message: str) -> Exit:
    print(f"stompkit.conformance: {message}", file=sys.stderr)
    return status


def main(arguments: list[str] | None = None) -> Exit:
    """Run the command; gives its exit status."""
    options = _parser().parse_args(arguments)
    selection = Selection(tuple(options.cases), tuple(options.exclude), options.level)
    try:
        if options.list:
            cases = all_cases(selection)
            _print_list(cases)
            return Exit.OK if cases else Exit.USAGE
        return _test(options, selection)
    except (Unreachable, BrokerError) as error:
        return _stop(Exit.UNREACHABLE, str(error))
    except known.ExpectationsError as error:
        return _stop(Exit.USAGE, str(error))
    except OSError as error:
        return _stop(Exit.USAGE, f"can't write a report: {error}")
    except HarnessError as error:
        return _stop(Exit.HARNESS, f"the suite itself failed:\n{error}")
    except KeyboardInterrupt:
        return _stop(Exit.HARNESS, "interrupted")


def _run() -> NoReturn:
    sys.exit(main())


if __name__ == "__main__":
    _run()
