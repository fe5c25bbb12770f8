"""The guard: a command that ends with the process that started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import stompkit.testing
from stompkit.testing.launching.polling import wait_until

GUARD = Path(stompkit.testing.__file__).parent / "launching" / "processes" / "guard.py"
LONG_S = 20.0
linux_only = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux hands orphans to a process of one's choice"
)

#: Writes its process id, then waits for ever.
WAITING = """
import os, pathlib, signal, sys
def tell(path):
    part = pathlib.Path(path + ".part")
    part.write_text(str(os.getpid()))
    part.rename(path)
tell(sys.argv[1])
while True:
    signal.pause()
"""
#: The same, but it creates a file when it is terminated.
CLEAN = """
import pathlib, signal, sys
def end(*_):
    pathlib.Path(sys.argv[2]).touch()
    sys.exit(7)
signal.signal(signal.SIGTERM, end)
"""
#: Ignores SIGTERM.
STUBBORN = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
#: Forks twice: a member of the process group and a daemon with a separate session.
FAMILY = """
import os, sys
if os.fork() == 0:
    sys.argv[1] = sys.argv[2]
elif os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    sys.argv[1] = sys.argv[3]
"""


class Scene:
    """Starts guards and their parents, and checks what remains of them."""

    def __init__(self, directory: Path) -> None:
        """Store the folder where processes write their files."""
        self.directory = directory
        self.started: list[subprocess.Popen[bytes]] = []

    def file(self, name: str) -> Path:
        """Return the path of a file that processes write."""
        return self.directory / name

    def script(self, text: str, *names: str) -> list[str]:
        """Return a command that runs ``text`` with paths of files as its arguments."""
        return [sys.executable, "-c", text, *(str(self.file(name)) for name in names)]

    def guard(self, command: list[str], grace_s: float = 5.0) -> subprocess.Popen[bytes]:
        """Start a guard with ``command``."""
        return self.start(guarded(command, grace_s))

    def start(self, command: list[str]) -> subprocess.Popen[bytes]:
        """Start any command, with pipes for its input and errors."""
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        self.started.append(process)
        return process

    def pid(self, name: str) -> int:
        """Return the process id in a file, once it exists."""
        path = self.file(name)
        assert wait_until(path.exists, LONG_S), f"no process wrote {name}"
        return int(path.read_text())

    def pids(self, *names: str) -> list[int]:
        """Return the process ids in several files."""
        return [self.pid(name) for name in names]

    def close(self) -> None:
        """Kill the processes that a test has left."""
        for path in self.directory.glob("*.pid"):
            if alive(int(path.read_text())):
                os.kill(int(path.read_text()), signal.SIGKILL)
        for process in self.started:
            with process:
                process.kill()


def guarded(command: list[str], grace_s: float) -> list[str]:
    return [sys.executable, "-I", str(GUARD), "--grace", str(grace_s), "--", *command]


def tell(guard: subprocess.Popen[bytes], word: bytes) -> None:
    """Write to the guard's input without closing it."""
    assert guard.stdin is not None
    guard.stdin.write(word)
    guard.stdin.flush()


def alive(pid: int) -> bool:
    """Return True if a process exists and has not ended; a zombie has ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return state(pid) not in ("Z", "X") if sys.platform == "linux" else True


def state(pid: int) -> str:
    """Return the state of a process as /proc names it."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return "X"


def all_gone(pids: list[int]) -> bool:
    return wait_until(lambda: not any(alive(pid) for pid in pids), LONG_S)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    scene.close()


@pytest.mark.parametrize("status", [0, 1, 77])
def test_ends_with_the_exit_status_of_the_command(scene: Scene, status: int) -> None:
    guard = scene.guard([sys.executable, "-c", f"raise SystemExit({status})"])
    assert guard.wait(LONG_S) == status


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV])
def test_ends_by_the_signal_that_ended_the_command(scene: Scene, number: int) -> None:
    guard = scene.guard([sys.executable, "-c", f"import os; os.kill(os.getpid(), {number})"])
    assert guard.wait(LONG_S) == -number


def test_says_which_command_can_not_be_run(scene: Scene) -> None:
    guard = scene.guard(["/no/such/program"])
    _, errors = guard.communicate(timeout=LONG_S)
    assert guard.returncode == 127
    assert b"cannot run /no/such/program: No such file or directory" in errors


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--"],
        ["true"],
        ["--grace"],
        ["--grace", "x", "--", "true"],
        ["--answers", "x", "--", "true"],
        ["--x", "y", "--", "true"],
    ],
)
def test_wrong_usage_is_told(scene: Scene, arguments: list[str]) -> None:
    guard = scene.start([sys.executable, "-I", str(GUARD), *arguments])
    _, errors = guard.communicate(timeout=LONG_S)
    assert guard.returncode == 2
    assert errors.startswith(b"usage:")


def test_end_of_input_ends_the_command_gently(scene: Scene) -> None:
    guard = scene.guard(scene.script(CLEAN + WAITING, "a.pid", "cleaned"))
    pid = scene.pid("a.pid")
    assert guard.stdin is not None
    guard.stdin.close()
    assert guard.wait(LONG_S) == 7
    assert scene.file("cleaned").exists()
    assert not alive(pid)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_command_gently(scene: Scene, number: int) -> None:
    guard = scene.guard(scene.script(CLEAN + WAITING, "a.pid", "cleaned"))
    scene.pid("a.pid")
    guard.send_signal(number)
    assert guard.wait(LONG_S) == 7
    assert scene.file("cleaned").exists()


def test_a_word_ends_the_command_gently(scene: Scene) -> None:
    guard = scene.guard(scene.script(CLEAN + WAITING, "a.pid", "cleaned"))
    scene.pid("a.pid")
    tell(guard, b"s")
    assert guard.wait(LONG_S) == 7
    assert scene.file("cleaned").exists()


def test_a_word_kills_the_command_at_once(scene: Scene) -> None:
    guard = scene.guard(scene.script(CLEAN + WAITING, "a.pid", "cleaned"))
    scene.pid("a.pid")
    tell(guard, b"\n?k")
    assert guard.wait(LONG_S) == -signal.SIGKILL
    assert not scene.file("cleaned").exists()


def test_a_command_that_ignores_sigterm_is_killed_after_the_grace_period(scene: Scene) -> None:
    guard = scene.guard(scene.script(STUBBORN + WAITING, "a.pid"), grace_s=0.3)
    scene.pid("a.pid")
    started = time.monotonic()
    guard.terminate()
    assert guard.wait(LONG_S) == -signal.SIGKILL
    assert time.monotonic() - started >= 0.3


@linux_only
def test_a_daemon_of_the_command_ends_too(scene: Scene) -> None:
    names = ("a.pid", "member.pid", "daemon.pid")
    guard = scene.guard(scene.script(FAMILY + WAITING, *names))
    pids = scene.pids(*names)
    guard.terminate()
    guard.wait(LONG_S)
    assert not any(alive(pid) for pid in pids)


def test_what_a_finished_command_left_behind_is_killed(scene: Scene) -> None:
    text = "import os, sys\nif os.fork():\n    os._exit(3)\n" + WAITING
    guard = scene.guard(scene.script(text, "child.pid"))
    assert guard.wait(LONG_S) == 3
    child = scene.file("child.pid")
    # The child may have been killed before it could write its process id.
    assert not (child.exists() and alive(int(child.read_text())))


#: Starts the guard as a parent would, and waits for ever.
PARENT = """
import subprocess, sys
child = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE)
"""


@linux_only
def test_nothing_is_left_when_the_parent_is_killed(scene: Scene) -> None:
    names = ("a.pid", "member.pid", "daemon.pid")
    command = guarded(scene.script(FAMILY + WAITING, *names), 5.0)
    parent = scene.start([*scene.script(PARENT + WAITING, "parent.pid"), *command])
    pids = scene.pids(*names)
    parent.kill()
    parent.wait(LONG_S)
    assert all_gone(pids)


def test_a_forked_copy_of_the_parent_does_not_keep_the_command_alive(scene: Scene) -> None:
    """The copy also has the other end of the guard's input, and continues to run."""
    text = (
        "import os\n"
        + PARENT
        + "if os.fork() == 0:\n    sys.argv[1] = sys.argv[1].replace('parent', 'copy')\n"
        + WAITING
    )
    command = guarded(scene.script(WAITING, "a.pid"), 5.0)
    parent = scene.start([*scene.script(text, "parent.pid"), *command])
    copy, pid = scene.pids("copy.pid", "a.pid")
    parent.kill()
    parent.wait(LONG_S)
    assert all_gone([pid])
    assert alive(copy)


@linux_only
def test_the_command_ends_when_the_guard_is_killed(scene: Scene) -> None:
    guard = scene.guard(scene.script(WAITING, "a.pid"))
    pid = scene.pid("a.pid")
    guard.kill()
    guard.wait(LONG_S)
    assert all_gone([pid])


# Actions on a running command.


class Talk:
    """A guard that answers, and whose command prints into a pipe."""

    def __init__(self, scene: Scene, command: list[str]) -> None:
        """Start it."""
        ours, theirs = os.pipe()
        self._answers = open(ours, encoding="ascii")
        self.process = subprocess.Popen(
            [sys.executable, "-I", str(GUARD), "--answers", str(theirs), "--", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[theirs],
        )
        os.close(theirs)
        scene.started.append(self.process)

    def ask(self, word: bytes) -> str:
        """Return the guard's answer to a command letter."""
        tell(self.process, word)
        return self._answers.readline()

    def printed(self) -> str:
        """Return the next line that the command prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().strip()

    def close(self) -> None:
        """Close the stream of answers."""
        self._answers.close()


@pytest.fixture
def talk(scene: Scene) -> Iterator[list[Talk]]:
    """A factory of guards that answer."""
    talks: list[Talk] = []
    yield talks
    for each in talks:
        each.close()


@linux_only
def test_a_pause_stops_all_that_the_command_started(scene: Scene, talk: list[Talk]) -> None:
    names = ("a.pid", "member.pid", "daemon.pid")
    talk.append(guard := Talk(scene, scene.script(FAMILY + WAITING, *names)))
    pids = scene.pids(*names)
    assert guard.ask(b"p") == "\n"
    assert [state(pid) for pid in pids] == ["T", "T", "T"]
    assert guard.ask(b"c") == "\n"
    assert wait_until(lambda: all(state(pid) == "S" for pid in pids), LONG_S)


@linux_only
@pytest.mark.parametrize(("word", "status"), [(b"s", 7), (b"k", -signal.SIGKILL)])
def test_a_paused_command_ends_as_any_other(
    scene: Scene, talk: list[Talk], word: bytes, status: int
) -> None:
    talk.append(guard := Talk(scene, scene.script(CLEAN + WAITING, "a.pid", "cleaned")))
    pid = scene.pid("a.pid")
    assert guard.ask(b"p") == "\n"
    assert state(pid) == "T"
    tell(guard.process, word)
    assert guard.process.wait(LONG_S) == status
    assert scene.file("cleaned").exists() is (word == b"s")


#: Makes the parent pause the command at SIGUSR1.
PAUSING = """
import signal
def pause(*_):
    child.stdin.write(b"p")
    child.stdin.flush()
signal.signal(signal.SIGUSR1, pause)
"""


@linux_only
def test_a_paused_family_ends_when_the_parent_is_killed(scene: Scene) -> None:
    names = ("a.pid", "member.pid", "daemon.pid")
    command = guarded(scene.script(FAMILY + WAITING, *names), 5.0)
    parent = scene.start([*scene.script(PARENT + PAUSING + WAITING, "parent.pid"), *command])
    pids = scene.pids(*names)
    os.kill(scene.pid("parent.pid"), signal.SIGUSR1)
    assert wait_until(lambda: all(state(pid) == "T" for pid in pids), LONG_S)
    parent.kill()
    parent.wait(LONG_S)
    assert all_gone(pids)


#: Tries to write to a file at SIGUSR1, by itself and by a child, and prints the results.
WRITER = """
import errno, os, signal, sys
def attempt():
    try:
        with open(sys.argv[2], "ab", buffering=0) as file:
            file.write(b"x")
        print("written", flush=True)
    except OSError as error:
        print(errno.errorcode[error.errno], flush=True)
def write(*_):
    attempt()
    if os.fork() == 0:
        attempt()
        os._exit(0)
    os.wait()
signal.signal(signal.SIGUSR1, write)
"""


@linux_only
def test_nothing_can_be_written_while_the_disk_is_full(scene: Scene, talk: list[Talk]) -> None:
    talk.append(guard := Talk(scene, scene.script(WRITER + WAITING, "a.pid", "file")))
    pid = scene.pid("a.pid")

    def attempts() -> list[str]:
        os.kill(pid, signal.SIGUSR1)
        return [guard.printed(), guard.printed()]

    assert attempts() == ["written", "written"]
    assert guard.ask(b"f") == "\n"
    assert attempts() == ["EFBIG", "EFBIG"]
    assert guard.ask(b"e") == "\n"
    assert attempts() == ["written", "written"]
    assert scene.file("file").read_bytes() == b"xxxx"


@linux_only
def test_a_full_disk_is_not_fatal_to_what_knows_nothing_of_it(
    scene: Scene, talk: list[Talk]
) -> None:
    """By default the signal of an exceeded limit kills a process."""
    script = 'echo $$ > "$0".part; mv "$0".part "$0"; while :; do echo x >> "$1"; done 2>/dev/null'
    command = ["sh", "-c", script, str(scene.file("a.pid")), str(scene.file("file"))]
    talk.append(guard := Talk(scene, command))
    pid = scene.pid("a.pid")
    assert guard.ask(b"f") == "\n"
    size = scene.file("file").stat().st_size
    assert guard.ask(b"e") == "\n"
    assert wait_until(lambda: scene.file("file").stat().st_size > size, LONG_S)
    assert alive(pid)


def test_an_answer_that_nobody_wants_is_not_given(scene: Scene) -> None:
    guard = scene.guard(scene.script(CLEAN + WAITING, "a.pid", "cleaned"))
    scene.pid("a.pid")
    tell(guard, b"pcs")
    assert guard.wait(LONG_S) == 7
