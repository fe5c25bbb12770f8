"""The examples of the guide to testing pass on all brokers, and equal those in the guide."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from stompkit.testing import LaunchConfig, launch
from stompkit.testing._settings import OPTIONS
from stompkit.testing.capabilities.capabilities import Capabilities
from tests.effort import in_matrix

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "testing"
GUIDE = ROOT / "docs" / "howto" / "testing.rst"
#: Each example is one test.
FILES = sorted(EXAMPLES.glob("test_*.py"))
LONG_S = 240.0
MOST_LINES = 20


def run(*arguments: str, outcome: str = f"{len(FILES)} passed") -> str:
    """Run the examples as a user would, with an expected outcome; return the output of pytest."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("STOMPKIT_MQ")
    }
    path = os.pathsep.join([str(ROOT), environment.get("PYTHONPATH", "")])
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-ra", *arguments, "."],
        cwd=EXAMPLES,
        env={**environment, "PYTHONPATH": path, "STOMPKIT_MQ_MISSING": "fail"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LONG_S,
    )
    assert result.returncode == 0, result.stdout
    assert f" {outcome}" in f" {result.stdout.splitlines()[-1].strip('= ')}", result.stdout
    return result.stdout


@pytest.mark.parametrize("name", ["stompkit", in_matrix("activemq"), in_matrix("rabbitmq")])
def test_the_examples_pass_on(name: str) -> None:
    assert name in run("--mq-broker", name)


@pytest.mark.parametrize("quirk", ["spring-simple", "morbidq"])
def test_the_example_of_faults_ends_on_a_broker_without_receipts(quirk: str) -> None:
    arguments = ["--mq-broker", "stompkit", "--mq-quirk", quirk, "-k", "test_faults"]
    assert "lacks receipt" in run(*arguments, outcome="1 skipped")


@pytest.mark.matrix
def test_the_examples_pass_on_brokers_that_were_started_by_hand() -> None:
    with launch(LaunchConfig()) as first, launch(LaunchConfig()) as second:
        said = run("--mq", f"127.0.0.1:{first.port},127.0.0.1:{second.port}")
        assert "(given)" in said


@pytest.mark.parametrize("example", FILES, ids=lambda path: path.stem)
def test_the_guide_shows_the_example(example: Path) -> None:
    _, _, code = example.read_text(encoding="utf-8").split('"""', 2)
    shown = re.search(
        rf"^\.\. examples/testing/{example.name}\n\n\.\. code-block:: python\n\n((?: .*\n|\n)*)",
        GUIDE.read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert shown is not None
    assert re.sub("^    ", "", shown[1], flags=re.MULTILINE).strip() == code.strip()
    assert len([line for line in code.splitlines() if line]) <= MOST_LINES


def test_the_guide_names_all_options_and_capabilities() -> None:
    guide = GUIDE.read_text(encoding="utf-8")
    assert [option.flag for option in OPTIONS if f"``{option.flag}``" not in guide] == []
    table = guide.partition(".. capabilities\n")[2]
    assert [name for name in Capabilities.names if f"``{name}``" not in table] == []


@pytest.mark.matrix
def test_the_demo_shows_a_broker_its_verdicts_and_a_replicated_database(tmp_path: Path) -> None:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    result = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "demo.py"), "--report", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=LONG_S,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    said = result.stdout
    assert re.search(r"^Console  http://127\.0\.0\.1:\d+/", said, re.MULTILINE)
    assert re.search(r"^\d+ cases, none failed", said, re.MULTILINE)
    assert re.search(r"^delete a customer's orders +86 +86 ", said, re.MULTILINE)
    assert (tmp_path / "conformance.html").stat().st_size > 0


def test_the_demo_recommends_only_files_that_run_in_its_environment() -> None:
    text = (ROOT / "examples" / "demo.py").read_text(encoding="utf-8")
    named = re.findall(r"-m pytest (examples/[\w/]+\.py)", text)
    assert named
    for path in named:
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        imported = [str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                imported += [each.name for each in node.names]
        others = {name.partition(".")[0] for name in imported} - sys.stdlib_module_names
        assert others <= {"pytest", "stompkit"}, path
