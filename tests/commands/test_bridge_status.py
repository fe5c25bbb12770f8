"""``stompkit bridge --status`` of a bridge that has ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from stompkit._commands.bridge.status import print_status, write
from stompkit._commands.shared.text import when
from stompkit.bridge import BridgeStatus


def test_a_bridge_that_has_ended_says_when_it_was_last_seen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "status.json"
    write(path, BridgeStatus(name="shop", pid=1, started_s=1_000_000.0, updated_s=2_000_000.0))
    assert print_status(path, as_json=False) == 1
    [line, *_] = capsys.readouterr().out.splitlines()
    assert line == f"shop does not run; its last status is of {when(2_000_000.0)}"
