"""The bill of materials: it names what setup.cfg requires, and no tools."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from configparser import RawConfigParser
from pathlib import Path

import pytest

from tests.benchmarks.programs import ROOT, missing

MAKE, AUDIT = (ROOT / "packaging" / name for name in ("make_sbom.py", "audit.py"))


@pytest.fixture(scope="module")
def bill(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bill of materials of the test environment."""
    if importlib.util.find_spec("cyclonedx_py") is None:
        raise missing("cyclonedx-bom is not installed")
    path = tmp_path_factory.mktemp("sbom") / "report" / "sbom.json"
    done = subprocess.run([sys.executable, MAKE, path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{path}: ")
    return path


def test_it_names_what_is_required(bill: Path) -> None:
    document = json.loads(bill.read_text())
    assert document["bomFormat"] == "CycloneDX"
    assert document["metadata"]["component"]["name"] == "stompkit"
    parser = RawConfigParser()
    parser.read(ROOT / "setup.cfg")
    lines = parser.get("options", "install_requires").split("\n")
    names = [line.partition(">")[0].strip() for line in lines if ">" in line]
    found = {each["name"].lower().replace("_", "-"): each for each in document["components"]}
    assert len(names) >= 4
    for name in names:
        assert found[name.lower()]["version"], name
        assert found[name.lower()]["purl"].startswith("pkg:pypi/")
    assert not found.keys() & {"pytest", "ruff", "mypy", "sphinx", "tox"}


def test_what_it_says_that_depends_on_each_other_is_in_it(bill: Path) -> None:
    document = json.loads(bill.read_text())
    there = {each["bom-ref"] for each in document["components"]}
    own, *others = document["dependencies"]
    assert own["ref"] == "stompkit" and own["dependsOn"]
    for each in (own, *others):
        assert there.issuperset(each["dependsOn"])


def test_an_audit_that_can_not_be_made_says_so_and_is_no_failure(tmp_path: Path) -> None:
    if importlib.util.find_spec("pip_audit") is None:
        raise missing("pip-audit is not installed")
    path = tmp_path / "sbom.json"
    path.write_text('{"components": [{"name": "stompkit-is-not-there", "version": "0.0.0"}]}')
    command = [sys.executable, str(AUDIT), str(path)]
    # A port on which nothing listens.
    nobody = "http://127.0.0.1:9"
    environment = {
        **os.environ,
        "https_proxy": nobody,
        "HTTPS_PROXY": nobody,
        "HOME": str(tmp_path),
    }
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert "NOT AUDITED" in done.stdout
