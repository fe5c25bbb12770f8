"""--update-baseline: changes of a list of known deviations by a run."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from stompkit.conformance.report import TargetInfo
from stompkit.conformance.report.baseline import new_baseline, update
from stompkit.conformance.report.expectations import Expectations, ExpectationsError, compare
from stompkit.conformance.run.runner import cases_folder
from stompkit.conformance.verdict import CaseResult, Verdict
from stompkit.testing import RunningBroker
from tests.conformance.broken_messages import send_needs_no_destination
from tests.conformance.conftest import Serve, Suite
from tests.conformance.proxy import behind
from tests.conformance.reports import HOSTILE, result

OK, FAILED, NON_STRICT = Verdict.OK, Verdict.FAILED, Verdict.NON_STRICT
IDS = ["1.0/a/one", "1.1/a/one", "1.2/a/one", "1.1/a/two", "1.2/a/two", "1.2/b/three", "1.2/b/four"]
HEAD = '# Known.\nbroker = "B"  # ours\nversions = "1"\n'
ONE = """
# About the first,
# in two lines.
[[deviation]]
cases = ["1.?/a/one"]  # in all versions
verdict = "FAILED"
reason = "first"  # why
link = "https://example.org/1"
"""
TWO = """
[[deviation]]
cases = [
    # Both of them:
    "1.?/a/two",
    '1.2/b/three',  # and this
]
verdict = "NON-STRICT"
reason = "second"
"""
APART = "\n# The rest.\n"
SOMETIMES = """
[[deviation]]
cases = ["1.2/b/four"]
verdict = "FAILED"
reason = "in a hurry"
sometimes = true
"""
TEXT = HEAD + ONE + TWO + APART + SOMETIMES


def found(**verdicts: Verdict) -> list[CaseResult]:
    """Return results of a run; ``one_2`` stands for 1.2/a/one."""
    names = {f"{each.rpartition('/')[2]}_{each[2]}": each for each in IDS}
    return [
        result(names[name], verdict, detail=f"saw {verdict}" if verdict is not OK else "")
        for name, verdict in verdicts.items()
    ]


AS_LISTED = found(
    one_0=FAILED, one_1=FAILED, one_2=FAILED, two_1=NON_STRICT, two_2=NON_STRICT, three_2=NON_STRICT
)


@pytest.mark.parametrize(
    "results",
    [
        AS_LISTED,
        [],
        found(four_2=OK),
        found(four_2=FAILED),
        found(four_2=NON_STRICT),
        found(one_2=Verdict.UNSUPPORTED, two_2=Verdict.UNSUPPORTED),
    ],
)
def test_list_that_the_run_does_not_contradict_stays_as_it_is(results: list[CaseResult]) -> None:
    """Missing and UNSUPPORTED results change nothing, nor do those of intermittent deviations."""
    done = update(TEXT, results, IDS)
    assert (done.text, done.added, done.dropped) == (TEXT, [], [])


@pytest.mark.parametrize("better", [OK, Verdict.INFORMATIONAL])
def test_case_that_passes_leaves_its_pattern(better: Verdict) -> None:
    """Only the list of cases changes."""
    done = update(TEXT, found(one_0=FAILED, one_1=better), IDS)
    assert done.text == TEXT.replace('"1.?/a/one"', '"1.0/a/one", "1.2/a/one"')
    assert (done.added, done.dropped) == ([], ["1.1/a/one"])


def test_entry_without_cases_goes_with_its_comments() -> None:
    done = update(TEXT, found(one_0=OK, one_1=OK, one_2=OK), IDS)
    assert done.text == HEAD + TWO + APART + SOMETIMES
    assert done.dropped == ["1.0/a/one", "1.1/a/one", "1.2/a/one"]


def test_comment_that_stands_apart_outlives_the_entry_above() -> None:
    done = update(TEXT, found(two_1=OK, two_2=OK, three_2=OK), IDS)
    assert done.text == HEAD + ONE + APART + SOMETIMES


def test_last_entry_goes() -> None:
    done = update(HEAD + ONE + TWO, found(two_1=OK, two_2=OK, three_2=OK), IDS)
    assert done.text == HEAD + ONE


def test_names_in_several_lines_keep_their_comments() -> None:
    done = update(TEXT, found(two_1=OK), IDS)
    assert done.text == TEXT.replace('"1.?/a/two"', '"1.2/a/two"')
    done = update(TEXT, found(three_2=OK), IDS)
    assert done.text == TEXT.replace("    '1.2/b/three',  # and this\n", "")
    done = update(TEXT, found(two_1=OK, two_2=OK), IDS)
    assert done.text == TEXT.replace('    "1.?/a/two",\n', "")


def test_new_deviations_have_what_was_seen_for_a_reason() -> None:
    """Deviations with the same verdict and reason share an entry."""
    done = update(HEAD + ONE, found(two_1=FAILED, three_2=NON_STRICT, two_2=FAILED), IDS)
    assert done.text == HEAD + ONE + (
        '\n[[deviation]]\ncases = ["1.1/a/two", "1.2/a/two"]\nverdict = "FAILED"\n'
        'reason = "saw FAILED"\n'
        '\n[[deviation]]\ncases = ["1.2/b/three"]\nverdict = "NON-STRICT"\n'
        'reason = "saw NON-STRICT"\n'
    )
    assert (done.added, done.dropped) == (["1.1/a/two", "1.2/b/three", "1.2/a/two"], [])


@pytest.mark.parametrize(("listed", "now"), [(FAILED, NON_STRICT), (NON_STRICT, FAILED)])
def test_deviation_with_another_verdict_is_a_new_one(listed: Verdict, now: Verdict) -> None:
    text = HEAD + ONE.replace("FAILED", listed)
    done = update(text, found(one_1=now), IDS)
    assert done.text == text.replace('"1.?/a/one"', '"1.0/a/one", "1.2/a/one"') + (
        f'\n[[deviation]]\ncases = ["1.1/a/one"]\nverdict = "{now}"\nreason = "saw {now}"\n'
    )
    assert done.added == done.dropped == ["1.1/a/one"]


def test_what_is_listed_twice_is_dropped_twice() -> None:
    """Otherwise the second entry would apply to the case after the first one is gone."""
    text = HEAD + ONE + ONE.replace("FAILED", "NON-STRICT")
    done = update(text, found(one_0=OK, one_1=OK, one_2=OK), IDS)
    assert done.text == HEAD
    assert done.dropped == ["1.0/a/one", "1.1/a/one", "1.2/a/one"]


def test_second_update_changes_nothing_and_the_run_is_as_expected() -> None:
    results = found(one_0=OK, one_1=FAILED, one_2=NON_STRICT, two_2=FAILED, four_2=OK)
    once = update(TEXT, results, IDS).text
    assert update(once, results, IDS).text == once
    assert compare(results, msgspec.toml.decode(once, type=Expectations)) == []
    assert all(each.expected for each in results if each.verdict in (FAILED, NON_STRICT))


def test_new_file_names_the_server() -> None:
    """Whatever text the server has sent, the new file can be read again."""
    for server, broker, version in (
        ("RabbitMQ/3.10.8", "RabbitMQ", "3.10.8"),
        # A comment may follow the version.
        ("ActiveMQ-Artemis/2.40.0 ActiveMQ Artemis Messaging Engine", "ActiveMQ-Artemis", "2.40.0"),
        ("", "[::1]:61613", "not said"),
        ('a"\\\n\x00\x7f\ud800', 'a"\\\n\x00\x7f\\ud800', "not said"),
    ):
        head = new_baseline(TargetInfo(address="[::1]:61613", server=server, versions=["1.2"]))
        known = msgspec.toml.decode(head, type=Expectations)
        assert (known.broker, known.versions) == (broker, version)
        done = update(head, [result("1.2/a/one", FAILED, HOSTILE)], IDS)
        (entry,) = msgspec.toml.decode(done.text, type=Expectations).deviation
        assert entry.reason == HOSTILE.encode("utf-8", "backslashreplace").decode()


@pytest.mark.parametrize(
    "text",
    [
        'deviation = [{cases = ["1.2/a/one"], verdict = "FAILED", reason = "x"}]\n' + HEAD,
        HEAD + ONE.replace("cases =", '"cases" ='),
        HEAD + ONE.replace('"1.?/a/one"', '"""1.?/a/one"""'),
        HEAD + ONE.replace('"1.?/a/one"', "'''1.?/a/one'''"),
    ],
    ids=["in one line", "a quoted key", "a long string", "a long literal string"],
)
def test_file_that_can_not_be_kept_as_it_is_written_is_refused(text: str) -> None:
    assert len(msgspec.toml.decode(text, type=Expectations).deviation) == 1
    with pytest.raises(ExpectationsError, match=r"^--update-baseline: .* cannot be kept: "):
        update(text, found(one_1=NON_STRICT), IDS)


@pytest.mark.parametrize(
    "path", sorted((cases_folder() / "brokers").glob("*.toml")), ids=lambda path: path.stem
)
def test_lists_that_come_with_the_suite_can_be_updated(path: Path) -> None:
    """Every entry can be dropped, and all others stay then."""
    text = path.read_text("utf-8")
    listed = msgspec.toml.decode(text, type=Expectations).deviation
    names = dict.fromkeys(
        name.replace("?", digit).replace("[12]", digit).replace("*", "x")
        for entry in listed
        for name in entry.cases
        for digit in "12"
    )
    firm = [
        name for name in names if not any(each.sometimes and each.covers(name) for each in listed)
    ]
    for name in firm:
        done = update(text, [result(name, OK)], list(names))
        assert done.dropped == [name]
    done = update(text, [result(name, OK) for name in firm], list(names))
    left = msgspec.toml.decode(done.text, type=Expectations)
    assert all(entry.sometimes for entry in left.deviation)
    assert done.text.startswith(text.partition("\n[[")[0])


# As a command.

RUN = ("1.2/send/destination-required", "1.2/send/delivers")


@pytest.mark.matrix
def test_run_is_judged_by_the_list_as_it_was(
    suite: Suite, serve: Serve, broker: RunningBroker, mq: str, tmp_path: Path
) -> None:
    """The run reports new failures and unexpected passes before the list is updated."""
    careless = serve(behind(send_needs_no_destination, broker.host, broker.port)).address
    path = tmp_path / "known.toml"

    done = suite("--mq", careless, "--update-baseline", path, *RUN)
    assert done.status == 1, done.told
    assert f"{path}: 1 added, 0 dropped\n" in done.out
    (entry,) = msgspec.toml.decode(path.read_bytes(), type=Expectations).deviation
    assert entry.cases == ["1.2/send/destination-required"]
    assert entry.verdict is FAILED

    written = path.read_text() + "# Mine.\n"
    path.write_text(written)
    done = suite("--mq", careless, "--update-baseline", path, *RUN)
    assert done.status == 0, done.told
    assert f"{path}: 0 added, 0 dropped\n" in done.out
    assert path.read_text() == written

    done = suite("--mq", mq, "--update-baseline", path, *RUN)
    assert done.status == 1, done.told
    assert "better than expected: 1.2/send/destination-required\n" in done.out
    assert f"{path}: 0 added, 1 dropped\n" in done.out
    assert not msgspec.toml.decode(path.read_bytes(), type=Expectations).deviation
    assert suite("--mq", mq, "--update-baseline", path, *RUN).status == 0


def test_run_with_a_broken_case_changes_nothing(suite: Suite, mq: str, tmp_path: Path) -> None:
    source = (
        "from stompkit.conformance import FailedError, case\n"
        '@case("1.2/send/delivers")\ndef test_1(peer):\n    """Do."""\n    peer.nosuch()\n'
        '@case("1.2/ack/acknowledges")\ndef test_2(peer):\n    """Do."""\n'
        '    raise FailedError("x")\n'
    )
    (tmp_path / "test_it.py").write_text(source)
    done = suite("--mq", mq, "--cases", ".", "--update-baseline", "known.toml")
    assert done.status == 4, done.told
    assert "left known.toml as it was: the run is not whole\n" in done.out
    assert not (tmp_path / "known.toml").exists()


def test_file_that_makes_no_sense_is_noticed_before_the_run(suite: Suite, tmp_path: Path) -> None:
    path = tmp_path / "known.toml"
    for text, message in (
        ("broker", "known.toml: "),
        (HEAD + ONE, "no case is called '1.?/a/one'"),
    ):
        path.write_text(text)
        done = suite("--mq", "localhost:1", "--update-baseline", "known.toml")
        assert done.status == 2, done.told
        assert done.err.startswith(f"stompkit.conformance: --update-baseline: {message}")
        assert path.read_text() == text
    done = suite("--expect", "rabbitmq", "--update-baseline", "known.toml")
    assert done.status == 2, done.told
    assert "not allowed with argument" in done.err
