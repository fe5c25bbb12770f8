"""Cases do not assume names of queues and topics of the target."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from stompkit.conformance.run.runner import cases_folder
from stompkit.testing import LaunchConfig, launch
from tests.conformance.command import read_report
from tests.conformance.conftest import Suite

#: Settings with no other destinations than those below, except for temporary ones.
SETTINGS = """\
[broker]
create = "config"

[[destination]]
name = "/queue/only.here.>"

[[destination]]
name = "/topic/only.there.>"
"""
TEMPLATES = (
    "--queue-template=/queue/only.here.{}",
    "--topic-template=/topic/only.there.{}",
)
#: Fast cases with all kinds of destinations.
CASES = (
    "1.2/send",
    "1.2/subscribe",
    "1.2/unsubscribe",
    "1.2/message",
    "1.2/ack-mode",
    "1.1/utf8",
    "behaviour/selector",
    "behaviour/durable",
    "behaviour/temporary",
    "behaviour/expiry/in-time",
    "behaviour/destination",
    "behaviour/persistence/receipted",
)
FILES = sorted(path for path in cases_folder().glob("*/test_*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_case_names_a_queue_or_topic_itself(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documented = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef)
        and isinstance(node.body[0], ast.Expr)
    }
    texts = [
        node.value if isinstance(node.value, str) else node.value.decode("latin-1")
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str | bytes)
        and id(node) not in documented
    ]
    named = [text for text in texts if "/queue/" in text or "/topic/" in text]
    assert not named, f"{path.name}: {named}"


def test_a_target_that_names_them_otherwise_passes(suite: Suite, tmp_path: Path) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text(SETTINGS)
    config = LaunchConfig(arguments=("--config", str(settings)))
    with launch(config) as broker:
        target = f"--mq={broker.host}:{broker.port}"
        usual = suite(target, "1.2/send/delivers")
        other = suite(target, *TEMPLATES, "--strict", "--json=other.json", *CASES)
    # Otherwise the test would prove nothing.
    assert usual.status == 1, usual.told
    assert other.status == 0, other.told
    left_out = {
        each.id
        for each in read_report(tmp_path / "other.json").results
        if each.verdict == "UNSUPPORTED" and "restart" not in each.detail
    }
    assert not left_out, f"not run: {sorted(left_out)}"
