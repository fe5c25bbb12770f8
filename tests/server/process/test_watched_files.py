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


def test_a_file_is_read_again_when_its_mode_is_repaired(tmp_path: Path) -> None:
    """The time, the size and the place of the file stay as they were."""
    path = tmp_path / "users"
    path.write_text("1")
    reading = _Reading(path)
    watched = Watched([path], reading)
    path.write_text("2")
    reading.is_allowed = False
    with capturedLogs() as events:
        assert [watched.get() for _ in range(3)] == ["1", "1", "1"]
        reading.is_allowed = True
        assert watched.get() == "2"
    assert [formatEvent(each) for each in events] == [
        f"{path} has changed and is invalid: not allowed: the previous content stays in use",
        f"{path} has changed and was reloaded",
    ]


def test_a_change_of_the_mode_is_a_change(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text("1")
    watched = Watched([path], path.read_text)
    path.chmod(0o400)
    watched.get()
    assert watched.reloads == 1


class _Reading:
    """A file that its reader may read at some times only; tests run as root, who always may."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_allowed = True

    def __call__(self) -> str:
        if not self.is_allowed:
            raise PermissionError("not allowed")
        return self.path.read_text()
