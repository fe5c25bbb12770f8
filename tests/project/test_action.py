"""The action for authors of brokers: its scripts run as GitHub runs them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import check_jsonschema
import pytest
import yaml

from stompkit.conformance.run.options import parser
from stompkit.testing import RunningBroker
from tests.conformance.scripted import Line, ScriptedServer, frame
from tests.ports import free_ports

ROOT: Final = Path(__file__).parents[2]
ACTION: Final[dict[str, Any]] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
PAGE: Final = ROOT / "docs" / "howto" / "conformance-ci.rst"
STEPS: Final[list[dict[str, Any]]] = ACTION["runs"]["steps"]


@dataclass(frozen=True)
class Done:
    """A step that has ended."""

    status: int
    printed: str
    outputs: Mapping[str, str]
    summary: str


def step(name: str) -> dict[str, Any]:
    return next(each for each in STEPS if each.get("name") == name)


def evaluate(text: str, inputs: Mapping[str, str], contexts: Mapping[str, str]) -> str:
    """Replace the expressions of a value: inputs and values of contexts."""

    def value(found: re.Match[str]) -> str:
        scope, _, name = found[1].partition(".")
        if scope == "inputs":
            return inputs.get(name, ACTION["inputs"][name].get("default", ""))
        return contexts[found[1]]

    return re.sub(r"\$\{\{ ([\w.-]+) \}\}", value, text)


def run(name: str, folder: Path, **inputs: str) -> Done:
    """Run the script of a step with *inputs*, in which ``_`` stands for ``-``."""
    given = {key.replace("_", "-"): value for key, value in inputs.items()}
    assert set(given) <= set(ACTION["inputs"])
    contexts = {
        "runner.temp": str(folder),
        "github.action_path": str(folder / "source"),
        "steps.python.outputs.python-path": sys.executable,
    }
    (folder / "output").write_text("")
    (folder / "summary").write_text("")
    wanted = step(name)
    variables = {key: evaluate(each, given, contexts) for key, each in wanted["env"].items()}
    files = {"GITHUB_OUTPUT": "output", "GITHUB_STEP_SUMMARY": "summary"}
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", wanted["run"]],
        cwd=folder,
        env={
            **os.environ,
            **variables,
            **{key: str(folder / each) for key, each in files.items()},
            "RUNNER_TEMP": str(folder),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    outputs = dict(each.split("=", 1) for each in (folder / "output").read_text().splitlines())
    return Done(done.returncode, done.stdout, outputs, (folder / "summary").read_text())


@pytest.fixture
def runner(tmp_path: Path) -> Path:
    """A runner's temporary folder, in which this environment is installed."""
    program = tmp_path / "stompkit" / "bin" / "python"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    program.chmod(0o755)
    return tmp_path


def test_a_broker_is_tested_and_reports_are_kept(runner: Path, stomp_broker: RunningBroker) -> None:
    (runner / "known.toml").write_text('broker = "ours"\nversions = "1"\n')
    done = run(
        "Run the suite",
        runner,
        mq=f"{stomp_broker.host}:{stomp_broker.port}",
        cases="1.2/send/del* 1.2/connect/connected-on-accept",
        expect="known.toml",
        require="1.1,1.2",
        login="alice",
        passcode="very secret",
        vhost="shop floor",
        strict="true",
        arguments="--jobs\n2\n--queue-template\n/queue/ci.{}\n",
        report_name="ours",
    )
    assert done.outputs == {"status": "0", "reports": str(runner / "ours")}, done.printed
    assert done.status == 0
    found = {path.name for path in (runner / "ours").iterdir()}
    promised = ACTION["outputs"]["reports"]["description"]
    assert found == set(re.findall(r"[\w-]+\.\w+", promised))
    assert done.summary == (runner / "ours" / "report.md").read_text(encoding="utf-8")
    report = (runner / "ours" / "report.json").read_text(encoding="utf-8")
    names = [each["id"] for each in json.loads(report)["results"]]
    assert "1.2/send/delivers" in names
    assert "1.2/connect/connected-on-accept" in names
    assert "very secret" not in report


def test_a_broker_without_a_required_version_fails_the_step(runner: Path) -> None:
    def old(line: Line) -> None:
        line.frame()
        line.send(frame("CONNECTED", {"session": "1"}))

    with ScriptedServer(old) as server:
        done = run(
            "Run the suite", runner, mq=server.address, cases="1.2/send/delivers", require="1.2"
        )
    assert (done.status, done.outputs["status"]) == (1, "1"), done.printed
    assert "The target does not speak STOMP 1.2" in done.summary


def test_a_broker_that_does_not_answer_fails_the_step(runner: Path) -> None:
    with free_ports(1) as [port]:
        done = run("Run the suite", runner, mq=f"127.0.0.1:{port}", cases="1.2/send/delivers")
    assert (done.status, done.outputs["status"]) == (3, "3"), done.printed


def test_a_wrong_input_fails_the_step_with_the_reason(runner: Path) -> None:
    done = run("Run the suite", runner, broker="rabitmq")
    assert (done.status, done.outputs["status"]) == (2, "2")
    assert "rabbitmq" in done.printed


def test_without_a_target_the_step_fails(runner: Path) -> None:
    """An empty variable for the address must not select the broker of stompkit."""
    done = run("Run the suite", runner, mq="", cases="1.2/send/delivers")
    assert done.status == 2, done.printed
    assert "set mq to the address of your broker" in done.printed


def test_options_of_the_action_are_those_of_the_suite() -> None:
    text = step("Run the suite")["run"]
    known = {option for action in parser()._actions for option in action.option_strings}
    used = set(re.findall(r"(?<![\w-])--[a-z-]+", text))
    assert used
    assert used <= known


def test_every_input_is_used() -> None:
    text = yaml.safe_dump(STEPS)
    assert [name for name in ACTION["inputs"] if f"inputs.{name} " not in text] == []


@pytest.mark.matrix
def test_the_suite_is_installed_from_the_action(tmp_path: Path) -> None:
    def ignored(folder: str, names: list[str]) -> set[str]:
        # Packages have folders with such names, too.
        is_root = Path(folder) == ROOT
        others = {"build", "report", "tests", "docs"} if is_root else {"__pycache__"}
        return {name for name in names if name in others or (is_root and name.startswith("."))}

    shutil.copytree(ROOT, tmp_path / "source", ignore=ignored)
    done = run("Install the suite", tmp_path)
    assert done.status == 0, done.printed
    done = run("Run the suite", tmp_path, broker="stompkit", cases="1.2/send/delivers")
    assert done.status == 0, done.printed


# The page about it.


def examples() -> list[dict[str, Any]]:
    """Return the YAML examples of the page."""
    blocks = re.findall(r"code-block:: yaml\n\n((?:    .*\n|\n)+)", PAGE.read_text("utf-8"))
    return [yaml.safe_load(textwrap.dedent(each)) for each in blocks]


def test_the_table_of_the_page_lists_the_inputs() -> None:
    listed = re.findall(r"^``([\w-]+)``  ", PAGE.read_text("utf-8"), re.MULTILINE)
    assert listed == list(ACTION["inputs"])


def test_the_examples_of_the_page_can_be_used(tmp_path: Path) -> None:
    workflow, steps, _ = examples()
    (tmp_path / "workflow.yml").write_text(yaml.safe_dump(workflow).replace("true:", "on:"))
    schema = ("--builtin-schema", "vendor.github-workflows")
    with pytest.raises(SystemExit) as ended:
        check_jsonschema.main([*schema, str(tmp_path / "workflow.yml")])
    assert ended.value.code == 0
    used = [*workflow["jobs"]["conformance"]["steps"], *steps]
    ours = [each["with"] for each in used if each.get("uses", "").startswith("stompkit/")]
    assert len(ours) == 2
    assert {name for given in ours for name in given} <= set(ACTION["inputs"])
