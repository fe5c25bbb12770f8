"""The command ``python -m stompkit.conformance``."""

from __future__ import annotations

import argparse
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from textwrap import wrap
from typing import NoReturn

from stompkit._common.spelling import closest, with_article
from stompkit._common.style import Style, discard_output, prepare_streams
from stompkit.conformance.address import Address
from stompkit.conformance.case import Case
from stompkit.conformance.clients.command import (
    check_client_options,
    client_cases,
    run_on_client,
)
from stompkit.conformance.control import Control, Given, Launched
from stompkit.conformance.report import expectations as known
from stompkit.conformance.report.badge import to_badge
from stompkit.conformance.report.baseline import update_file
from stompkit.conformance.report.html import to_html
from stompkit.conformance.report.junit import to_junit
from stompkit.conformance.report.markdown import to_markdown
from stompkit.conformance.report.merge import merge
from stompkit.conformance.report.report import Report, TargetInfo, schema, to_json
from stompkit.conformance.report.summary import header_lines, summary_lines
from stompkit.conformance.report.writing import write_reports
from stompkit.conformance.run.options import parser
from stompkit.conformance.run.progress import Progress
from stompkit.conformance.run.runner import Exit, HarnessError, Selection, all_cases, exit_of, run
from stompkit.conformance.run.signals import interruptible
from stompkit.conformance.target import (
    Capabilities,
    UnreachableError,
    is_alive,
    probe_within,
)
from stompkit.conformance.verdict import SuiteError
from stompkit.testing import BrokerError, LaunchConfig, Tunnel, launch

__all__ = ["main", "parser"]

#: Width of the list of cases in columns, and of the indent of their statements.
_LIST_WIDTH = 80
_LIST_INDENT = 9
#: Exit status of a run that a signal has interrupted; any other is that of Ctrl-C.
_BY_SIGNAL = {int(signal.SIGTERM): Exit.TERMINATED, int(signal.SIGHUP): Exit.HUNG_UP}


@contextmanager
def _target(options: argparse.Namespace) -> Iterator[tuple[Address, Control]]:
    """Yield the address of the given server, or of one that is launched for the run."""
    common = {
        "queue_template": options.queue_template,
        "topic_template": options.topic_template,
        "has_ack": not options.no_ack,
        "has_receipts": not options.no_receipts,
        "timeout_s": options.timeout,
        "quiet_s": options.quiet_time,
        "seed": options.seed,
        "fuzz_sessions": options.fuzz,
    }
    login, passcode = options.login, options.passcode
    if options.mq is not None:
        with ExitStack() as tunnels:
            # Host and port of a target behind a tunnel are those of the tunnel.
            leading = [
                (each.host, each.port)
                for each in (
                    place if place.is_plain else tunnels.enter_context(Tunnel(place))
                    for place in options.mq
                )
            ]
            (host, port), *others = leading
            has_tunnels = not all(place.is_plain for place in options.mq)
            address = Address(
                host,
                port,
                login,
                passcode,
                options.mq[0].host if has_tunnels and options.vhost is None else options.vhost,
                others=tuple(others),
                places=tuple(options.mq) if has_tunnels else (),
                **common,
            )
            control = Given(
                address,
                restart=options.restart,
                stop=options.stop,
                start=options.start,
                has_one_store=True if options.one_store else None,
            )
            yield address, control
        return
    name = options.broker or "stompkit"
    reason = "" if options.broker else "No --mq: "
    print(f"{reason}starting {with_article(name)} broker.", flush=True)
    config = LaunchConfig(
        name=name,
        login=login,
        passcode=passcode,
        vhost=options.vhost,
        persistent=None,
    )
    with launch(config) as broker:
        address = Address(
            broker.host, broker.port, broker.login, broker.passcode, broker.vhost, **common
        )
        with Launched(broker, config, address) as launched:
            yield address, launched


def _run(options: argparse.Namespace, selection: Selection, cases: int) -> Report:
    with _target(options) as (address, control):
        capabilities = probe_within(address, options.wait)
        info = TargetInfo(
            address=str(address),
            server=capabilities.server,
            versions=list(capabilities.versions),
        )
        print("\n".join(header_lines(info, cases)), flush=True)
        _warn_of_silent_nodes(address, capabilities)
        progress = Progress(sys.stdout, cases)
        try:
            return run(
                address,
                capabilities,
                selection,
                control=control,
                jobs=options.jobs,
                required=options.require,
                on_case=progress.case,
                on_result=progress.result,
            )
        finally:
            progress.end()


def _warn_of_silent_nodes(address: Address, capabilities: Capabilities) -> None:
    """Print a warning for each further node that does not serve: it may be down, or a standby."""
    for number in range(1, address.nodes):
        node = address.node(number)
        is_serving = False
        with suppress(SuiteError):  # this machine may have no way to the node
            is_serving = is_alive(node, capabilities.versions[-1])
        if not is_serving:
            print(
                f"stompkit.conformance: warning: node {number + 1}, {node}, does not answer"
                " CONNECT. Start it, unless it is a standby: without it, failover cases are"
                " UNSUPPORTED",
                file=sys.stderr,
            )


def _write_files(options: argparse.Namespace, report: Report, case_ids: list[str]) -> None:
    write_reports(
        options,
        {
            "json": lambda: to_json(report),
            "junit": lambda: to_junit(report, strict=options.strict),
            "html": lambda: to_html(report),
            "markdown": lambda: to_markdown(report, strict=options.strict),
            "badge": lambda: to_badge(report, strict=options.strict),
        },
    )
    baseline = options.update_baseline
    if baseline is not None:
        try:
            update_file(baseline, report, case_ids)
        except OSError as error:
            message = f"--update-baseline: cannot write {baseline}: {error}"
            raise known.UsageError(message) from None


def _known(options: argparse.Namespace, case_ids: list[str]) -> known.Expectations | None:
    """Return the known deviations of the target; a list to be updated counts as it is."""
    option, path = "--expect", options.expect
    if options.update_baseline is not None and options.update_baseline.exists():
        option, path = "--update-baseline", options.update_baseline
    if path is None:
        return None
    expected = known.load(path, option)
    known.check(expected, case_ids, option)
    return expected


def _test(options: argparse.Namespace, selection: Selection) -> Exit:
    is_client = options.serve or options.exec is not None
    everything = client_cases() if is_client else all_cases(Selection(folder=selection.folder))
    cases = _selected(selection, everything, is_client=is_client)
    if options.list:
        _print_list(cases)
        return Exit.OK
    case_ids = [each.id for each in everything]
    expected = _known(options, case_ids)
    report = run_on_client(options, cases) if is_client else _run(options, selection, len(cases))
    if expected is not None:
        report.better_than_expected = known.compare(report.results, expected)
    print(
        "\n".join(
            summary_lines(
                report,
                strict=options.strict,
                has_profile=options.profile,
                style=Style(sys.stdout),
            )
        )
    )
    _write_files(options, report, case_ids)
    status = exit_of(report, strict=options.strict)
    if report.failed_command:
        raise known.UsageError(f"{report.failed_command}. Correct it, and run the cases again.")
    if status is Exit.HARNESS:
        raise HarnessError("\n".join(report.errors))
    return status


def _selected(selection: Selection, everything: list[Case], *, is_client: bool) -> list[Case]:
    if selection.folder is not None and not everything:
        raise known.UsageError(
            f"--cases: there is no case in {selection.folder}: a case is a function with @case or"
            " @trial in a file test_*.py"
        )
    for pattern in selection.unknown(everything):
        option, blank, given = pattern.partition(" ")
        if blank and option.startswith("-"):
            raise known.UsageError(
                f"{pattern!r} is one argument: give {option} and its value as two, or as"
                f" {option}={given.strip()}"
            )
        raise known.UsageError(
            f"there is no case {pattern!r}; {_advice(pattern, everything, is_client=is_client)}"
        )
    cases = [case for case in everything if selection.takes(case)]
    if not cases:
        raise known.UsageError("no case is selected; --list shows what there is")
    return cases


def _advice(pattern: str, everything: list[Case], *, is_client: bool) -> str:
    """Return what to do about a pattern that selects no case."""
    if re.fullmatch(r"(\w+://.*|[^/*]*:\d+)", pattern):
        return f"to test the server there, write --mq {pattern}"
    if pattern.partition("/")[0] == "client" and not is_client:
        return "cases of clients need --exec or --serve"
    if pattern == "merge":
        return "merge comes first, without --mq: stompkit conformance merge"
    meant = closest(pattern, _names(everything))
    return f"did you mean {meant}?" if meant else "--list prints all cases"


def _names(cases: list[Case]) -> set[str]:
    """Return the names that select cases: ids, their beginnings, and ids of statements."""
    ids = [case.id.split("/") for case in cases]
    beginnings = {"/".join(words[:count]) for words in ids for count in range(1, len(words) + 1)}
    return beginnings.union(*(case.requirements for case in cases))


def _print_list(cases: list[Case]) -> None:
    """Print the cases, one a line, each followed by its indented statement."""
    for each in cases:
        print(f"{each.level:<7}{each.id}")
        indent = " " * _LIST_INDENT
        for line in wrap(
            each.statement, _LIST_WIDTH, initial_indent=indent, subsequent_indent=indent
        ):
            print(line)
    print(f"{len(cases)} {'case' if len(cases) == 1 else 'cases'}")


def _ask(arguments: list[str]) -> Exit:
    options = parser().parse_args(arguments)
    if options.mq is not None and options.broker is not None:
        raise known.UsageError("--mq and --broker: test the one or launch the other")
    if options.restart is not None and options.mq is None:
        raise known.UsageError("--restart is for the server that --mq names")
    if (options.stop is None) != (options.start is None):
        raise known.UsageError("--stop and --start are about the same nodes: give both")
    is_about_nodes = options.stop is not None or options.one_store
    if is_about_nodes and (options.mq is None or len(options.mq) == 1):
        raise known.UsageError("--stop, --start and --one-store are for nodes: --mq A:1,B:2")
    check_client_options(options)
    if options.schema:
        print(schema(), end="")
        return Exit.OK
    selection = Selection(
        tuple(options.include), tuple(options.exclude), options.level, options.cases
    )
    return _test(options, selection)


def main(arguments: list[str] | None = None) -> Exit:
    """Run the command; return its exit status."""
    words = sys.argv[1:] if arguments is None else arguments
    with interruptible() as signals:
        status = _main_of(words)
    return _BY_SIGNAL.get(signals[0], status) if signals and status is Exit.INTERRUPTED else status


def _main_of(words: list[str]) -> Exit:
    try:
        # No case has this name: names of cases begin with a version.
        if words[:1] == ["merge"]:
            merge(words[1:])
            return Exit.OK
        return _ask(words)
    except BrokerError as error:
        return _stop(Exit.UNREACHABLE, error.for_command())
    except UnreachableError as error:
        return _stop(Exit.UNREACHABLE, str(error))
    except known.UsageError as error:
        return _stop(Exit.USAGE, str(error))
    except HarnessError as error:
        return _stop(Exit.HARNESS, f"the suite itself failed:\n{error}")
    except KeyboardInterrupt:
        return _stop(Exit.INTERRUPTED, "interrupted")


def _stop(status: Exit, message: str) -> Exit:
    print(f"stompkit.conformance: {message}", file=sys.stderr)
    return status


def _main() -> NoReturn:
    prepare_streams()
    try:
        status: int = main()
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has closed the pipe, as ``head`` does.
        discard_output()
        status = 128 + signal.SIGPIPE
    sys.exit(status)


if __name__ == "__main__":
    _main()
