"""The alerting rules and the dashboard that the package contains."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from stompkit.testing import RunningBroker
from tests.optional import report_missing
from tests.server.admin.asking import Asker
from tests.server.admin.test_metrics import names

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "howto" / "monitoring.rst"
SCENARIOS = Path(__file__).with_name("alert_scenarios.yaml")
#: Of brokers with a lease, or with TLS.
OTHERS = {
    "stompkit_lease_epoch",
    "stompkit_lease_age_seconds",
    "stompkit_certificate_expiry_timestamp_seconds",
}


def printed(what: str) -> str:
    """Return what the command prints."""
    command = [sys.executable, "-m", "stompkit", "monitoring", what]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def rules() -> list[dict[str, Any]]:
    """Return the alerting rules."""
    [group] = yaml.safe_load(printed("alerts"))["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def metrics_in(expression: str) -> set[str]:
    """Return the names of metrics in an expression of Prometheus."""
    return set(re.findall(r"\b(?:stompkit|process)_[a-z_]+\b", expression))


def test_the_rules_ask_for_what_there_is(ask: Asker, broker: RunningBroker) -> None:
    known = names(ask) | OTHERS
    for rule in rules():
        asked = metrics_in(rule["expr"])
        assert asked <= known, rule["alert"]
        assert asked or rule["alert"] == "StompkitDown"


def test_every_rule_says_what_is_wrong_and_the_page_what_to_do() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert set(rule["annotations"]) == {"summary", "description"}
        assert f"``{rule['alert']}``" in page


def test_each_alert_is_raised_in_its_situation_only(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        report_missing(pytestconfig, "promtool is not installed", "prometheus")
    scenarios = SCENARIOS.read_text(encoding="utf-8")
    assert set(re.findall(r'alertname="(\w+)"', scenarios)) == {each["alert"] for each in rules()}
    (tmp_path / "alerts.yaml").write_text(printed("alerts"), encoding="utf-8")
    (tmp_path / SCENARIOS.name).write_text(scenarios, encoding="utf-8")
    command = [promtool, "test", "rules", str(tmp_path / SCENARIOS.name)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_dashboard_asks_for_what_there_is(ask: Asker) -> None:
    known = names(ask)
    dashboard = json.loads(printed("dashboard"))
    expressions = list(_expressions(dashboard["panels"]))
    assert len(expressions) >= len(dashboard["panels"]) > 5
    for expression in expressions:
        asked = metrics_in(expression)
        assert asked and asked <= known, expression
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            match = re.search(r"label_values\((\w+),", variable["query"])
            assert match is not None and match[1] in known


def _expressions(panels: list[dict[str, Any]]) -> Iterator[str]:
    return (target["expr"] for panel in panels for target in panel["targets"])


def test_the_unit_leaves_the_broker_what_the_metrics_of_its_process_need() -> None:
    # prometheus_client reads the time of the boot there, and reports nothing without it.
    unit = (ROOT / "packaging" / "systemd" / "stompkit.service").read_text(encoding="utf-8")
    assert not re.search(r"^ProcSubset=(?!all)", unit, re.MULTILINE)
