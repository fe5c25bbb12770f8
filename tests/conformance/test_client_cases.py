"""A client that breaks one rule fails the cases about that rule, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from stompkit.conformance.clients.case import client_case, gather
from stompkit.conformance.clients.cases import all_cases
from stompkit.conformance.clients.client import Client, Patience
from stompkit.conformance.clients.trials import Trials
from stompkit.conformance.verdict import CaseResult, Verdict
from tests.conformance.minimal_client import Agent, thread_launcher
from tests.conformance.test_second_client import FAILED_HERE
from tests.conformance.wrong_clients import FAULTS, Fault

for each in sorted(Path(__file__).parent.glob("wrong_*.py")):
    import_module(f"tests.conformance.{each.stem}")

CASES = {case.id: case for case in all_cases()}
#: Fast cases about various rules, which run on each client: most rules are kept there.
CONTROL = (
    "client/connect/first-frame",
    "client/connect/host",
    "client/1.2/subscribe/id",
    "client/1.0/ack/names-message",
    "client/1.1/ack/names-message",
    "client/1.2/ack/escapes",
    "client/1.1/escape/reads",
    "client/1.2/escape/writes",
    "client/header/spaces",
    "client/body/nul",
    "client/body/unchanged",
    "client/frame/line-ends-between",
    "client/transaction/commit",
    "client/message/unknown-subscription",
    "client/disconnect/ends",
    "client/error/ends",
)
#: Shorter than the defaults for users, but long for events within one process.
PATIENCE = Patience(timeout_s=5.0, quiet_s=0.3)


def ids(patterns: tuple[str, ...]) -> set[str]:
    """Return the cases that match patterns; each pattern must match some."""
    found = {pattern: [i for i in CASES if fnmatchcase(i, pattern)] for pattern in patterns}
    assert all(found.values()), f"no such case: {found}"
    return {case_id for some in found.values() for case_id in some}


def results(
    agent: type[Agent], case_ids: set[str], patience: Patience = PATIENCE
) -> dict[str, CaseResult]:
    """Return the results of cases on a client."""
    trials = Trials(thread_launcher(agent), patience=patience, jobs=4)
    trials.run([case for case_id, case in CASES.items() if case_id in case_ids])
    assert not trials.errors, trials.errors
    return {result.id: result for result in trials.results}


def findings(fault: type[Fault]) -> dict[str, str]:
    """Return the cases that are FAILED or NON-STRICT for a client, with the reasons."""
    bad = (Verdict.FAILED, Verdict.NON_STRICT)
    found = results(fault, {*ids(fault.found_by), *CONTROL})
    return {case_id: each.detail for case_id, each in found.items() if each.verdict in bad}


@pytest.fixture(scope="module")
def found() -> Iterator[dict[str, Future[dict[str, str]]]]:
    """The results for each client; the runs are concurrent, because they mostly wait."""
    with ThreadPoolExecutor(8) as pool:
        yield {name: pool.submit(findings, fault) for name, fault in FAULTS.items()}
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("name", FAULTS)
def test_a_broken_rule_is_found(name: str, found: dict[str, Future[dict[str, str]]]) -> None:
    """All cases about the rule detect it, and no others."""
    what = found[name].result()
    assert set(what) == ids(FAULTS[name].found_by), f"{FAULTS[name].__doc__} {what}"


def test_a_client_that_keeps_the_rules_is_not_found_at_fault() -> None:
    verdicts = {case_id: each.verdict for case_id, each in results(Agent, set(CASES)).items()}
    free = {case_id for case_id, case in CASES.items() if case.case.informational}
    assert {i for i, verdict in verdicts.items() if verdict is not Verdict.OK} == free
    assert set(verdicts) == set(CASES)


class _BeatsRarely(Agent):
    """Offers and wants heart-beats more rarely than the server of the cases."""

    heart_beat = (2_000, 2_000)


def test_a_client_is_given_the_time_of_its_own_heart_beats() -> None:
    about = {f"client/heartbeat/{each}" for each in ("both-ways", "silent-server")}
    found = results(_BeatsRarely, about, Patience(timeout_s=0.7, quiet_s=0.3))
    assert {i: (each.verdict, each.detail) for i, each in found.items()} == dict.fromkeys(
        about, (Verdict.OK, "")
    )


def test_every_case_is_one_that_a_client_can_fail() -> None:
    failed = {case_id for fault in FAULTS.values() for case_id in ids(fault.found_by)}
    failed |= set(FAILED_HERE)
    assert {i for i, case in CASES.items() if not case.case.informational} - failed == set()


def test_failed_is_explained_by_the_words_of_the_specification() -> None:
    """A case without such words is NON-STRICT."""
    found: dict[str, CaseResult] = {}
    for name in ("WritesRawColons", "TakesErrorsEasily"):
        found |= results(FAULTS[name], ids(FAULTS[name].found_by))
    failed = {i for i, each in found.items() if each.verdict is Verdict.FAILED}
    assert failed == ids(FAULTS["WritesRawColons"].found_by)
    assert {i for i, each in found.items() if each.sentence} == failed
    said = found["client/1.2/escape/writes"].sentence
    assert said.startswith("All frames except the CONNECT and CONNECTED frames will also escape")
    weak = {i for i, each in found.items() if each.verdict is Verdict.NON_STRICT}
    assert weak == ids(FAULTS["TakesErrorsEasily"].found_by)


def test_a_client_that_can_not_do_something_says_so() -> None:
    about = {"client/failover/refused", "client/connect/first-frame"}
    verdicts = {i: each.verdict for i, each in results(FAULTS["DoesNotGoOn"], about).items()}
    assert verdicts == {
        "client/failover/refused": Verdict.UNSUPPORTED,
        "client/connect/first-frame": Verdict.OK,
    }


# The cases themselves.


def module(*functions: object) -> ModuleType:
    """Return a module with these functions."""
    made = ModuleType("cases")
    vars(made).update({f"case_{number}": each for number, each in enumerate(functions)})
    return made


def a_case(client: Client) -> None:
    """Expect nothing."""


def test_a_case_is_run_for_each_of_its_versions() -> None:
    decorate = client_case(
        "client/ack/x",
        "S.",
        level="MUST",
        section="ACK",
        versions=("1.0", "1.2"),
        covers=["1.0/ack/message-id-required", "1.2/ack/id-required"],
    )
    made = [each.case for each in gather([module(decorate(a_case))])]
    assert [each.id for each in made] == ["client/1.0/ack/x", "client/1.2/ack/x"]
    assert [each.version for each in made] == ["1.0", "1.2"]
    assert [each.requirements for each in made] == [
        ("1.0/ack/message-id-required",),
        ("1.2/ack/id-required",),
    ]
    assert made[0].expectation == "Expect nothing."
    assert made[0].chapter == "client"


@pytest.mark.parametrize(
    ("name", "covers", "reason"),
    [
        ("client/x", ["1.2/no/such"], "is not in the catalogue"),
        ("client/x", ["1.2/connect/connected-on-accept"], "is not for clients"),
        ("x/client", [], "does not begin with client/"),
    ],
)
def test_a_case_that_says_what_is_not_so_is_refused(
    name: str, covers: list[str], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        client_case(name, "S.", level="MUST", section="ACK", covers=covers)(a_case)


def test_a_case_without_a_docstring_is_refused() -> None:
    with pytest.raises(ValueError, match="docstring"):
        client_case("client/x", "S.", level="MUST", section="ACK")(lambda client: None)


def test_two_cases_of_one_name_are_refused() -> None:
    def another(client: Client) -> None:
        """Expect something."""

    decorate = client_case("client/x", "S.", level="MUST", section="ACK")
    with pytest.raises(ValueError, match="two cases called client/x"):
        gather([module(decorate(a_case), decorate(another))])


def test_a_mistake_in_a_case_is_the_suites_own() -> None:
    @client_case("client/x", "S.", level="MUST", section="ACK")
    def broken(client: Client) -> None:
        """Raise what no case may raise."""
        raise RuntimeError("a mistake")

    trials = Trials(thread_launcher(Agent), patience=PATIENCE)
    trials.run(gather([module(broken)]))
    assert trials.results == []
    (error,) = trials.errors
    assert "RuntimeError: a mistake" in error


class Echoing(Agent):
    """An agent that sends each message back."""

    def message(self, headers: dict[str, str], body: bytes) -> None:
        """Send any body back, and acknowledge the message."""
        self.reply(body)
        self.acknowledge("ACK", headers)


def test_agent_that_knows_no_instruction_is_told_so() -> None:
    """It sends the instruction back, as it does with any other body: no frame is at fault."""
    found = results(Echoing, {"client/1.2/escape/reads", "client/transaction/commit"})
    for each in found.values():
        assert each.detail.startswith("the agent did not do the instruction '"), each.detail
        assert "but sent it back: see 'The agent'" in each.detail
