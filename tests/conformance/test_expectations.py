"""Known deviations, and --strict."""

from __future__ import annotations

from pathlib import Path

import pytest

from stompkit.conformance.report.expectations import (
    Deviation,
    Expectations,
    ExpectationsError,
    check,
    compare,
    load,
)
from stompkit.conformance.run.runner import cases_folder
from stompkit.conformance.run.values import expectations_of
from stompkit.conformance.verdict import CaseResult, Ending, Verdict
from stompkit.testing import RunningBroker
from tests.conformance.broken_messages import no_content_length, send_needs_no_destination
from tests.conformance.command import read_report, run_command
from tests.conformance.conftest import Serve, Suite
from tests.conformance.proxy import behind

REQUIRED = "1.2/send/destination-required"
RECOMMENDED = "1.2/message/content-length-should"
SHIPPED = sorted((cases_folder() / "brokers").glob("*.toml"))


def deviation(cases: str, verdict: str) -> str:
    return (
        'broker = "of the test"\nversions = "1"\n'
        f'[[deviation]]\ncases = ["{cases}"]\nverdict = "{verdict}"\nreason = "no time yet"\n'
    )


@pytest.mark.parametrize(
    ("broker", "name"),
    [
        ("rabbitmq", "rabbitmq"),
        ("rabbitmq:3.10.8", "rabbitmq"),
        ("rabbitmq:4", "rabbitmq-4"),
        ("rabbitmq:4.3.6", "rabbitmq-4"),
        ("rabbitmq:4.5.1", "rabbitmq-4.5"),
        # Versions are compared as numbers, not as text.
        ("rabbitmq:40.1", "rabbitmq"),
        ("rabbitmq-4", "rabbitmq-4"),
        ("artemis:2.40.0", "artemis"),
        ("nosuch:1", None),
        ("rabbit", None),
    ],
)
def test_list_of_a_broker_is_that_of_its_version(broker: str, name: str | None) -> None:
    names = ("rabbitmq", "rabbitmq-4", "rabbitmq-4.5", "artemis")
    shipped = {each: Path(f"{each}.toml") for each in names}
    assert expectations_of(broker, shipped) == (None if name is None else shipped[name])


@pytest.fixture
def careless(serve: Serve, broker: RunningBroker) -> str:
    """The address of a server that accepts SEND without destination."""
    return serve(behind(send_needs_no_destination, broker.host, broker.port)).address


def test_deviation_that_is_expected(suite: Suite, careless: str, tmp_path: Path) -> None:
    (tmp_path / "known.toml").write_text(deviation("1.?/send/dest*", "FAILED"))
    reports = ("--json", "r.json", "--junit", "r.xml", "--html", "r.html")
    run = ("--mq", careless, *reports, REQUIRED, "1.2/send/delivers")
    done = suite(*run)
    assert done.status == 1, done.told
    assert "1 of 2 cases failed" in done.out
    assert 'failures="1" skipped="0"' in (tmp_path / "r.xml").read_text()

    done = suite(*run, "--expect", "known.toml")
    assert done.status == 0, done.told
    assert "2 cases, none failed, beside 1 that was expected to deviate" in done.out
    assert "    expected: no time yet\n" in done.out
    expected = {each.id: each.expected for each in read_report(tmp_path / "r.json").results}
    assert expected == {REQUIRED: "no time yet", "1.2/send/delivers": ""}
    assert 'failures="0" skipped="1"' in (tmp_path / "r.xml").read_text()
    assert "no time yet" in (tmp_path / "r.html").read_text("utf-8")


def test_deviation_that_has_gone(suite: Suite, mq: str, tmp_path: Path) -> None:
    (tmp_path / "known.toml").write_text(deviation(REQUIRED, "FAILED"))
    done = suite("--mq", mq, "--expect", "known.toml", "--json", "r.json", REQUIRED)
    assert done.status == 1, done.told
    assert f"better than expected: {REQUIRED}" in done.out
    assert "1 case, none failed, 1 better than listed, in " in done.out
    assert read_report(tmp_path / "r.json").better_than_expected == [REQUIRED]


def test_deviation_that_has_got_worse(suite: Suite, careless: str, tmp_path: Path) -> None:
    (tmp_path / "known.toml").write_text(deviation(REQUIRED, "NON-STRICT"))
    done = suite("--mq", careless, "--expect", "known.toml", REQUIRED)
    assert done.status == 1, done.told
    assert "1 of 1 case failed" in done.out
    assert "better" not in done.out


def test_unexpected_are_named_behind_the_expected(
    suite: Suite, careless: str, tmp_path: Path
) -> None:
    (tmp_path / "known.toml").write_text(deviation(REQUIRED, "FAILED"))
    done = suite("--mq", careless, "--expect", "known.toml", "1.[12]/send/destination-required")
    assert done.status == 1, done.told
    *_, unexpected, judgement = done.out.splitlines()
    assert unexpected == "not expected: 1.1/send/destination-required"
    assert "1 of 2 cases failed, beside 1 that was expected" in judgement


def test_deviation_of_a_case_that_is_not_run(suite: Suite, mq: str, tmp_path: Path) -> None:
    (tmp_path / "known.toml").write_text(deviation(REQUIRED, "FAILED"))
    done = suite("--mq", mq, "--expect", "known.toml", "1.2/send/delivers")
    assert done.status == 0, done.told


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            deviation("1.2/no/such*", "FAILED"),
            "no case is called '1.2/no/such*', which a deviation",
        ),
        (deviation(f"{REQUIRED}s", "FAILED"), f"; did you mean {REQUIRED}?"),
        (
            deviation(REQUIRED, "FAILED").replace("cases", "case"),
            "deviation[0]: there is no key 'case'; did you mean cases?",
        ),
        (
            deviation(REQUIRED, "FAILED").replace("reason", "#"),
            "deviation[0]: the key 'reason' is missing",
        ),
        (deviation(REQUIRED, "BAD"), "Invalid enum value 'BAD'; the verdicts are OK, "),
        ("broker = 1", "broker: must be a string, not a whole number"),
        ("broker", "known.toml: "),
    ],
)
def test_file_that_makes_no_sense(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "known.toml"
    path.write_text(text)
    with pytest.raises(ExpectationsError, match=r"^--expect: ") as error:
        check(load(path), [REQUIRED])
    assert message in str(error.value)


def test_file_that_makes_no_sense_is_wrong_usage(suite: Suite, tmp_path: Path) -> None:
    """The error is reported before the first connection to the target."""
    (tmp_path / "known.toml").write_text(deviation("1.2/no/such*", "FAILED"))
    done = suite("--mq", "localhost:1", "--expect", "known.toml", REQUIRED)
    assert done.status == 2, done.told
    assert done.err.startswith("stompkit.conformance: --expect: no case is called '1.2/no/such*'")


def test_strict(suite: Suite, serve: Serve, broker: RunningBroker, tmp_path: Path) -> None:
    server = serve(behind(no_content_length, broker.host, broker.port))
    run = ("--mq", server.address, "--junit", "r.xml", RECOMMENDED)
    done = suite(*run)
    assert done.status == 0, done.told
    assert f"NON-STRICT  {RECOMMENDED}  [SHOULD]" in done.out
    assert "(NON-STRICT does not count as a failure without --strict)" in done.out
    assert 'failures="0" skipped="0"' in (tmp_path / "r.xml").read_text()
    done = suite(*run, "--strict")
    assert done.status == 1, done.told
    assert "1 of 1 case failed" in done.out
    assert "does not count" not in done.out
    assert 'failures="1" skipped="0"' in (tmp_path / "r.xml").read_text()


@pytest.fixture(scope="session")
def every_id(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The ids of all cases."""
    listed = run_command("--list", cwd=tmp_path_factory.mktemp("list")).out
    return [line.split()[1] for line in listed.splitlines()[:-1] if not line.startswith(" ")]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_lists_that_come_with_the_suite(path: Path, every_id: list[str]) -> None:
    """Each list refers to existing cases, and has a reason and a link for each deviation."""
    expectations = load(path)
    check(expectations, every_id)
    for each in expectations.deviation:
        assert each.reason
        assert each.link.startswith("https://") or expectations.link.startswith("https://")


@pytest.mark.parametrize("sometimes", [True, False])
@pytest.mark.parametrize("expected", list(Verdict))
@pytest.mark.parametrize("found", list(Verdict))
def test_comparison(
    expected: Verdict,
    found: Verdict,
    sometimes: bool,  # noqa: FBT001 (a parameter of the test)
) -> None:
    """UNSUPPORTED is ignored; an intermittent deviation may be milder or absent at any time."""
    entry = Deviation(cases=["1.2/*"], verdict=expected, reason="why", sometimes=sometimes)
    known = Expectations(broker="b", versions="1", deviation=[entry])
    results = [a_result(REQUIRED, found), a_result("1.1/send/delivers", found)]
    better = compare(results, known)
    is_milder = sometimes and (expected, found) == (Verdict.FAILED, Verdict.NON_STRICT)
    assert [each.expected for each in results] == [
        "why" if found is expected or is_milder else "",
        "",
    ]
    ranks = {
        Verdict.OK: 0,
        Verdict.INFORMATIONAL: 0,
        Verdict.NON_STRICT: 1,
        Verdict.FAILED: 2,
        Verdict.UNSUPPORTED: 3,
    }
    is_better = ranks[found] < ranks[expected] and not sometimes
    if expected is Verdict.UNSUPPORTED:
        is_better = ranks[found] == 0 and not sometimes
    assert better == ([REQUIRED] if is_better else [])


def a_result(name: str, verdict: Verdict) -> CaseResult:
    return CaseResult(
        id=name,
        version="1.2",
        chapter="1.2",
        section="",
        level="MUST",
        requirements=[name],
        statement="",
        expectation="",
        verdict=verdict,
        ending=Ending.CLEAN,
    )
