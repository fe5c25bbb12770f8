"""Files that are reloaded when they change."""

from __future__ import annotations

from pathlib import Path

from twisted.logger import capturedLogs, formatEvent

from stompkit.server.process.watched_files import Watched


def test_a_file_that_is_two_things_is_named_once(tmp_path: Path) -> None:
    path, other = tmp_path / "both.pem", tmp_path / "ca.pem"
    path.write_text("1")
    watched = Watched([path, path, other], path.read_text)
    path.write_text("second")
    with capturedLogs() as events:
        assert watched.get() == "second"
    assert [formatEvent(each) for each in events] == [
        f"{path}, {other} has changed and was reloaded"
    ]
