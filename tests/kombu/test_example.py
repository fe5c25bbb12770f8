"""The application in the guide to Celery runs, and is identical to the one in the guide."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from stompkit.kombu._session import Options
from stompkit.testing import RunningBroker
from tests.kombu.conftest import url_of
from tests.kombu.consuming import LONG_S
from tests.kombu.workers import ROOT, Worker

SHOP = ROOT / "examples" / "celery"


@pytest.mark.parametrize("broker", ["stompkit"], indirect=True)
def test_the_application_of_the_guide_runs(broker: RunningBroker, tmp_path: Path) -> None:
    path = os.pathsep.join([str(ROOT), str(SHOP), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "BROKER_URL": url_of(broker), "PYTHONPATH": path}
    log = tmp_path / "worker.log"
    # At this level, the log reports that the worker is ready.
    worker = Worker(["-A", "shop", "worker", "-l", "INFO"], environment, log, tmp_path)
    try:
        worker.ready()
        program = f"""
import shop
print(shop.add.delay(1, 2).get(timeout={LONG_S}))
print(shop.charge.delay("Ann").get(timeout={LONG_S}))
"""
        result = subprocess.run(
            [sys.executable, "-c", program],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=3 * LONG_S,
        )
        assert result.stdout.split("\n")[:2] == ["3", "Ann has paid"], result.stderr + worker.log
        assert worker.stop() == 0, worker.log
    finally:
        if worker.process.poll() is None:
            worker.kill()


def test_the_guide_shows_the_application() -> None:
    guide = (ROOT / "docs" / "howto" / "celery.rst").read_text(encoding="utf-8")
    shown = re.search(
        r"^\.\. examples/celery/shop\.py\n\n\.\. code-block:: python\n\n((?: .*\n|\n)*)",
        guide,
        re.MULTILINE,
    )
    assert shown is not None
    code = (SHOP / "shop.py").read_text(encoding="utf-8").split('"""', 2)[2]
    assert re.sub("^    ", "", shown[1], flags=re.MULTILINE).strip() == code.strip()


def test_the_guide_names_all_options() -> None:
    guide = (ROOT / "docs" / "howto" / "celery.rst").read_text(encoding="utf-8")
    assert [each.name for each in fields(Options) if f"``{each.name}``" not in guide] == []
