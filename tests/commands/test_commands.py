"""The command ``stompkit``."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

import stompkit
from stompkit import is_compiled
from stompkit._commands import COMMANDS, main
from stompkit.server.operations import DirectoryLock, Settings, parse_settings, read_settings
from stompkit.testing.launching.polling import wait_until
from stompkit.testing.transcripts import SeenFrame, Transcript
from tests.server.processes import LOOPBACK, TWIST, Client, Start, announced, processes

DEADLINE_S = 30.0
COMMAND = [sys.executable, "-m", "stompkit"]
ROOT = str(Path(stompkit.__file__).parents[1])


def environment() -> dict[str, str]:
    paths = [ROOT, os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def run(*arguments: str | Path, said: str = "", status: int = 0) -> str:
    """Run ``stompkit`` and return its output, on both streams; ``said`` is its input."""
    output = TextIOWrapper(BytesIO(), encoding="utf-8", write_through=True)
    with redirect_stdout(output), redirect_stderr(output), pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", TextIOWrapper(BytesIO(said.encode()), encoding="utf-8"))
        try:
            ended: object = main([*map(str, arguments)])
        except SystemExit as error:
            ended = error.code
    printed = output.buffer
    assert isinstance(printed, BytesIO)
    text = printed.getvalue().decode()
    assert (ended or 0) == status, text
    return text


def run_process(*arguments: str | Path, status: int = 0) -> str:
    """Run it in a child process, with the output of its children."""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == status, done.stdout
    assert "Traceback" not in done.stdout
    return done.stdout


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """A function that starts brokers, and ends all that still run."""
    (tmp_path / "logs").mkdir()
    with processes(tmp_path / "logs") as start:
        yield start


# All of them.


def test_help_lists_the_commands() -> None:
    text = run("--help")
    for name, command in COMMANDS.items():
        assert f"  {name} " in text
        assert command.description in text
    assert "exit status: 0" in text


@pytest.mark.parametrize("arguments", [["--help"], ["replica", "--help"]])
def test_help_imports_no_more_than_it_needs(arguments: list[str]) -> None:
    code = f"import sys; from stompkit._commands import main\ntry: main({arguments})\nfinally:"
    done = subprocess.run(
        [sys.executable, "-c", f"{code} print(*sys.modules)"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    imported = {name.partition(".")[0] for name in done.stdout.splitlines()[-1].split()}
    assert "argparse" in imported
    assert imported.isdisjoint({"twisted", "msgspec", "lmdb", "sqlalchemy", "pytest"})


def test_without_a_command_the_help_is_printed_as_an_error() -> None:
    assert "commands:" in run(status=2)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("check-cnofig", "did you mean check-config?"),
        ("xyzzy", "See stompkit --help"),
    ],
)
def test_a_command_that_there_is_not_is_told(name: str, meant: str) -> None:
    text = run(name, status=2)
    assert f"there is no command '{name}'" in text
    assert meant in text


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "version"])
def test_every_command_teaches_its_use(name: str) -> None:
    text = run(name, "--help")
    assert "exit status" in text.lower()
    assert name in text


def test_the_end_of_whoever_reads_is_no_error() -> None:
    command = f"'{sys.executable}' -m stompkit show-config | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    first, status = done.stdout.splitlines()
    assert first.startswith("# The settings")
    assert status in ("0", "141")
    assert done.stderr == ""


def test_version_says_what_it_runs_on() -> None:
    lines = run("version").splitlines()
    what = "compiled" if is_compiled() else "not compiled"
    assert lines[0] == f"stompkit {stompkit.__version__}, {what}"
    assert [line.split()[0].rstrip(":") for line in lines[1:5]] == [
        "Python",
        "Twisted",
        "msgspec",
        "lmdb",
    ]
    assert run("--version").splitlines() == lines
    told = json.loads(run("version", "--json"))
    assert told["stompkit"] == stompkit.__version__
    assert f"Twisted {told['packages']['Twisted']}" in lines


# Settings.


#: Settings that any machine can listen with.
ANY_PORT = '[[listen]]\nendpoint = "tcp:0:interface=127.0.0.1"\n'


def test_check_config_says_that_a_file_is_right(tmp_path: Path) -> None:
    path = tmp_path / "f.toml"
    path.write_text(f"[broker]\nprefetch = 5\n{ANY_PORT}")
    assert run("check-config", path) == f"{path}: OK\n"


def test_check_config_tells_every_mistake(tmp_path: Path) -> None:
    path = tmp_path / "f.toml"
    path.write_text("[broker]\nmax_conections = 5\nprefetch = 0\n[[listen]]\nendpoint = 'x:1'")
    assert run("check-config", path, status=1).splitlines() == [
        f"{path}, line 2: [broker] max_conections: unknown; did you mean max_connections?",
        f"{path}, line 3: [broker] prefetch: must be a whole number of 1 or more, not 0",
        f"{path}, line 5: [[listen]] #1 endpoint: cannot listen on x:1: there is no kind of"
        " endpoint 'x'; there are haproxy, ssl, stomps, systemd, tcp, tcp6, unix",
    ]


def test_check_config_tells_programs_too(tmp_path: Path) -> None:
    path = tmp_path / "f.toml"
    path.write_text(f"[broker]\nprefetch = 5\n{ANY_PORT}")
    assert json.loads(run("check-config", "--json", path)) == {
        "file": str(path),
        "is_ok": True,
        "problems": [],
        "warnings": [],
    }
    path.write_text("[broker]\nprefetch = 0")
    told = json.loads(run("check-config", path, "--json", status=1))
    assert not told["is_ok"]
    assert told["problems"] == run("check-config", path, status=1).splitlines()


def test_the_command_is_a_process_with_its_status(tmp_path: Path) -> None:
    path = tmp_path / "f.toml"
    path.write_text(ANY_PORT)
    assert run_process("check-config", path) == f"{path}: OK\n"
    path.write_text("[brokr]")
    assert "did you mean broker?" in run_process("check-config", path, status=1)
    assert "missing: FILE" in run_process("check-config", status=2)


def test_check_config_tells_that_there_is_no_file(tmp_path: Path) -> None:
    path = tmp_path / "missing"
    assert run("check-config", path, status=1) == f"{path}: cannot be read: {os.strerror(2)}\n"


def test_show_config_prints_a_file_of_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "printed.toml"
    path.write_text(run("show-config"))
    # The default port may be in use.
    assert run("check-config", path).splitlines()[-1] == f"{path}: OK"
    assert read_settings(path) == Settings()


def test_show_config_prints_what_a_file_sets_among_all_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "f.toml"
    path.write_text('[broker]\nprefetch = 5\n[[destination]]\nname = "/queue/a"\npriority = true')
    text = run("show-config", path)
    assert parse_settings(text, "printed") == read_settings(path)
    said = [line for line in text.splitlines() if line and not line.startswith(("#", "["))]
    assert said == ["prefetch = 5", 'name = "/queue/a"', "priority = true"]
    assert "\n#max_connections = 10_000\n" in text


def test_show_config_tells_the_mistakes_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "f.toml"
    path.write_text("[brokr]")
    assert run("show-config", path, status=1).startswith(f"{path}, line 1: [brokr]: unknown")


# Passwords.


def test_passwd_makes_users_who_can_log_in(start: Start, tmp_path: Path) -> None:
    users, announce = tmp_path / "users", tmp_path / "announce"
    run("passwd", users, "joe", "--group", "ops", "--group", "staff", said="secret\nmore\n")
    run("passwd", users, "ann b", said="other")
    assert users.stat().st_mode & 0o777 == 0o600
    names = [line.split(":")[0::2] for line in users.read_text().splitlines()]
    assert names == [["joe", "ops,staff"], ["ann b"]]
    arguments = ["--endpoint", LOOPBACK, "--announce", str(announce)]
    process = start(TWIST, *arguments, "--auth", f"stompkit:{users}")
    [where] = announced(process, announce)
    for login, answer in (("joe:secret", b"CONN"), ("ann b:other", b"CONN"), ("joe:no", b"ERRO")):
        with Client(where, login) as client:
            assert client.first.startswith(answer)
    run("passwd", users, "joe", said="changed")
    run("passwd", users, "ann b", "--remove")
    assert users.read_text().endswith(":ops,staff\n")
    for login, answer in (("joe:secret", b"ERRO"), ("ann b:other", b"ERRO"), ("joe:changed", b"C")):
        with Client(where, login) as client:
            assert client.first.startswith(answer)


def test_passwd_leaves_the_rest_of_the_file_alone(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("# ours\n\nann:scrypt$x:ops\n")
    users.chmod(0o640)
    run("passwd", users, "joe", said="secret")
    assert users.read_text().startswith("# ours\n\nann:scrypt$x:ops\njoe:scrypt$")
    run("passwd", users, "ann", said="other")
    assert users.read_text().endswith(":ops\n")
    run("passwd", users, "ann", "--group", "dev", said="other")
    assert users.read_text().endswith(":dev\n")
    run("passwd", users, "ann", "--no-group", said="other")
    assert users.read_text().count(":") == 2
    users.write_text("# ours\n\nann:scrypt$x:ops\njoe:scrypt$\n")
    run("passwd", users, "joe", "--remove")
    assert users.read_text() == "# ours\n\nann:scrypt$x:ops\n"
    assert users.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [users]


def test_passwd_asks_twice_on_a_terminal(tmp_path: Path) -> None:
    users = tmp_path / "users"
    for again, status in (("other", 1), ("secret", 0)):
        ours, theirs = pty.openpty()
        with subprocess.Popen(
            [*COMMAND, "passwd", str(users), "joe"],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment(),
            start_new_session=True,
        ) as process:
            os.close(theirs)
            shown = b""
            for prompt, words in ((b"Passcode of joe: ", "secret"), (b"same again: ", again)):
                while not shown.endswith(prompt):
                    shown += os.read(ours, 1000)
                os.write(ours, f"{words}\n".encode())
            assert process.wait(DEADLINE_S) == status
        os.close(ours)
        assert users.exists() is (status == 0)
        assert b"secret" not in shown


@pytest.mark.parametrize(
    ("arguments", "status", "problem"),
    [
        (["joe", "--remove"], 1, "has no user joe"),
        (["joe"], 1, "a passcode must not be empty"),
        (["joe:x"], 2, "has no colon"),
        (["#joe"], 2, "does not begin with #"),
        ([""], 2, "printable"),
        (["joe", "--group", "a,b"], 2, "neither colon nor comma"),
        (["joe", "--group", "a", "--no-group"], 2, "not allowed with"),
    ],
)
def test_passwd_refuses_what_the_file_could_not_say(
    tmp_path: Path, arguments: list[str], status: int, problem: str
) -> None:
    assert problem in run("passwd", tmp_path / "users", *arguments, status=status)
    assert list(tmp_path.iterdir()) == []


def test_passwd_tells_what_it_cannot_write(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "users"
    text = run("passwd", path, "joe", said="secret", status=1)
    assert text == (
        f"stompkit passwd: the directory {path.parent} does not exist. Create it first:"
        f" mkdir -p {path.parent}\n"
    )


# Stores.


@pytest.fixture
def data(start: Start, tmp_path: Path) -> Path:
    """The data directory of a broker that has ended, with three messages."""
    directory, announce = tmp_path / "data", tmp_path / "announce"
    arguments = ["--data", str(directory), "--endpoint", LOOPBACK, "--announce", str(announce)]
    process = start(TWIST, *arguments)
    with Client(announced(process, announce)[0]) as client:
        for number in range(3):
            assert client.send("/queue/a", f"m{number}").startswith(b"RECEIPT\n")
    process.terminate()
    return directory


def bodies(start: Start, tmp_path: Path, *arguments: str) -> list[bytes]:
    """Return the bodies in the queue of a broker with these arguments."""
    announce = tmp_path / f"announce.{len(list(tmp_path.iterdir()))}"
    process = start(TWIST, "--endpoint", LOOPBACK, "--announce", str(announce), *arguments)
    with Client(announced(process, announce)[0]) as client:
        frames = [client.subscribe("/queue/a"), client.receive(), client.receive()]
    process.terminate()
    return [frame.rpartition(b"\n")[2] for frame in frames]


def test_a_store_goes_through_a_file_into_another(start: Start, tmp_path: Path, data: Path) -> None:
    file, other, database = tmp_path / "e.jsonl", tmp_path / "other", tmp_path / "db.sqlite"
    assert run("store", "export", data, file) == "3 messages exported\n"
    assert file.stat().st_mode & 0o777 == 0o600
    said = run("store", "export", data, "-")
    assert said == file.read_text() + "3 messages exported\n"
    assert run("store", "import", file, other) == "3 messages imported\n"
    run("store", "import", "-", f"sqlite:///{database}", said=file.read_text())
    assert run("store", "export", f"sqlite:///{database}", "-") == said
    assert bodies(start, tmp_path, "--data", str(other)) == [b"m0", b"m1", b"m2"]
    settings = tmp_path / "f.toml"
    settings.write_text(f'[store]\nurl = "sqlite:///{database}"')
    assert bodies(start, tmp_path, "--config", str(settings)) == [b"m0", b"m1", b"m2"]


def test_a_store_can_be_checked_and_compacted(start: Start, tmp_path: Path, data: Path) -> None:
    assert run("store", "check", data) == f"{data}: OK\n"
    told = json.loads(run("store", "check", "--json", data))
    assert told == {"file": str(data), "is_ok": True, "problems": []}
    assert "bytes before" in run("store", "compact", data)
    told = json.loads(run("store", "compact", data, "--json"))
    assert told["octets_before"] >= told["octets_after"] > 0
    assert run("store", "check", data) == f"{data}: OK\n"
    assert bodies(start, tmp_path, "--data", str(data)) == [b"m0", b"m1", b"m2"]


def test_a_store_with_faults_is_told(data: Path) -> None:
    file = data / "messages.lmdb" / "data.mdb"
    content = bytearray(file.read_bytes())
    content[8192:] = b"x" * (len(content) - 8192)
    file.write_bytes(content)
    assert run("store", "check", data, status=1).strip()


def test_a_store_that_a_broker_works_with_is_left_alone(
    start: Start, tmp_path: Path, data: Path
) -> None:
    announce = tmp_path / "second"
    process = start(TWIST, "--data", str(data), "--endpoint", LOOPBACK, "--announce", str(announce))
    announced(process, announce)
    file = tmp_path / "e.jsonl"
    text = run("store", "export", data, file, status=1)
    assert f"{data} is in use by process {process.popen.pid} on " in text
    assert not file.exists()
    assert "using" in run("store", "compact", data, status=1)


def test_an_export_overwrites_nothing(tmp_path: Path, data: Path) -> None:
    file = tmp_path / "e.jsonl"
    file.write_text("precious")
    assert "is there already" in run("store", "export", data, file, status=1)
    assert file.read_text() == "precious"


def test_an_import_needs_an_empty_store_and_a_whole_export(tmp_path: Path, data: Path) -> None:
    file = tmp_path / "e.jsonl"
    run("store", "export", data, file)
    assert "not empty" in run("store", "import", file, data, status=1)
    cut = file.read_text().splitlines(keepends=True)[:-1]
    text = run("store", "import", "-", tmp_path / "other", said="".join(cut), status=1)
    assert "cut off" in text


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["check", "missing"], "there is no store in missing"),
        (["compact", "missing"], "there is no store in missing"),
        (["export", "missing", "file"], "there is no store in missing"),
        (["import", "missing", "other"], f"missing: {os.strerror(2)}"),
        (["export", "nonsense://", "file"], "nonsense:// cannot be used"),
        (["export", "a b://", "file"], "the URL of an SQL store has to be like"),
    ],
)
def test_a_store_or_file_that_is_not_there_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    text = run("store", *arguments, status=1)
    assert text.startswith("stompkit store: ")
    assert problem in text
    assert list(tmp_path.iterdir()) == []


# Conformance.


def test_conformance_hands_everything_over_to_the_suite() -> None:
    assert "1.2/send/" in run_process("conformance", "--list", "1.2/send/*")
    assert "there is no case 'nonsense'" in run_process("conformance", "nonsense", status=2)


# A broker for the duration of a command.

TALK = """
import os, socket
with socket.create_connection((os.environ["STOMPKIT_HOST"], int(os.environ["STOMPKIT_PORT"]))) as s:
    login = os.environ.get("STOMPKIT_LOGIN")
    words = f"login:{login}\\npasscode:{os.environ['STOMPKIT_PASSCODE']}\\n" if login else ""
    host = os.environ["STOMPKIT_VHOST"]
    s.sendall(f"CONNECT\\naccept-version:1.2\\nhost:{host}\\n{words}\\n\\0".encode())
    print(s.recv(1000).split(b"\\n")[0].decode(), os.environ["STOMPKIT_URL"])
"""


@pytest.mark.parametrize("login", [[], ["--login", "joe", "--passcode", "secret"]])
def test_run_gives_a_command_a_broker(login: list[str]) -> None:
    answer, url = run_process("run", *login, "--", sys.executable, "-c", TALK).split()
    assert answer == "CONNECTED"
    assert url.startswith("stomp://127.0.0.1:")


def test_run_ends_as_the_command_does() -> None:
    assert run_process("run", "--", "sh", "-c", "exit 7", status=7) == ""
    assert run_process("run", "sh", "-c", "kill -TERM $$", status=128 + signal.SIGTERM) == ""


def test_run_stops_the_broker_after_the_command(tmp_path: Path) -> None:
    log = tmp_path / "log"
    port = int(run_process("run", "--log", log, "--", "sh", "-c", "echo $STOMPKIT_PORT"))
    assert "listening on" in log.read_text()
    with pytest.raises(ConnectionRefusedError):
        Client({"host": "127.0.0.1", "port": port})


def test_run_hands_arguments_on_to_the_broker(tmp_path: Path) -> None:
    log = tmp_path / "log"
    run_process(
        "run", "--broker-argument=--log-frames", "--log", log, "--", sys.executable, "-c", TALK
    )
    assert '< CONNECT {"accept-version": "1.2"' in log.read_text()


def test_run_keeps_the_frames_without_passcodes(tmp_path: Path) -> None:
    frames = tmp_path / "seen.stomp"
    login = ["--login", "joe", "--passcode", "s3cret"]
    run_process("run", *login, "--frames", frames, "--", sys.executable, "-c", TALK)
    events = Transcript.load(frames).events
    seen = [event.frame for event in events if isinstance(event, SeenFrame)]
    assert [frame.command for frame in seen] == ["CONNECT", "CONNECTED"]
    assert seen[0].headers["login"] == "joe"
    assert "s3cret" not in frames.read_text()


#: Sends more frames than a log of frames holds.
MANY = """
import os, socket
with socket.create_connection((os.environ["STOMPKIT_HOST"], int(os.environ["STOMPKIT_PORT"]))) as s:
    s.sendall(b"CONNECT\\naccept-version:1.2\\nhost:x\\n\\n\\0")
    for n in range(10_100):
        s.sendall(b"SEND\\ndestination:/topic/a\\n\\n%d\\0" % n)
    s.sendall(b"DISCONNECT\\nreceipt:1\\n\\n\\0")
    while s.recv(1000): pass
"""


def test_run_keeps_any_number_of_frames(tmp_path: Path) -> None:
    frames = tmp_path / "seen.stomp"
    run_process("run", "--frames", frames, "--", sys.executable, "-c", MANY)
    transcript = Transcript.load(frames)
    seen = [event.frame for event in transcript.events if isinstance(event, SeenFrame)]
    bodies = [frame.text for frame in seen if frame.command == "SEND"]
    assert bodies == [str(number) for number in range(10_100)]
    assert (transcript.forgotten, seen[0].command) == (0, "CONNECT")


#: Prints the names of the headers of CONNECTED.
HEADERS = """
import os
from stompkit.testing.client import StompClient
client = StompClient.connect(os.environ["STOMPKIT_HOST"], int(os.environ["STOMPKIT_PORT"]))
print(*client.connected)
"""


@pytest.mark.parametrize("option", ["--quirk", "--broker"])
def test_run_has_a_broker_played(option: str) -> None:
    printed = run_process("run", option, "morbidq", "--", sys.executable, "-c", HEADERS)
    assert printed == "session\n"


def test_run_tells_of_a_quirk_that_there_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The folder for the log of a broker that did not start.
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    text = run_process("run", "--quirk", "nonsense", "--", "true", status=125)
    assert "Error: --quirk: 'nonsense' is neither a broker nor a rule" in text


def test_run_keeps_the_log_of_a_broker_that_did_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    broker = f"command:{sys.executable} -c 'print(\"no licence\")' {{port}}"
    text = run_process("run", "--broker", broker, "--", "true", status=125)
    assert "| no licence" in text
    assert "LaunchConfig" not in text
    [log] = tmp_path.iterdir()
    assert f"  log:     {log}\n" in text
    assert log.read_text() == "no licence\n"


def test_run_takes_any_broker_by_its_command() -> None:
    endpoint = "tcp:{port}:interface={host}"
    broker = f"command:{sys.executable} -m twisted stompkit --endpoint {endpoint}"
    talk = ["--broker", broker, "--", sys.executable, "-c", TALK]
    assert run_process("run", *talk).startswith("CONNECTED stomp://127.0.0.1:")


def test_run_tells_what_it_could_not_keep(tmp_path: Path) -> None:
    nowhere = tmp_path / "missing" / "file"
    for option in ("--log", "--frames"):
        text = run_process("run", option, nowhere, "--", "sh", "-c", "exit 7", status=7)
        assert text == f"stompkit run: {nowhere}: {os.strerror(2)}\n"


@pytest.mark.parametrize(
    ("arguments", "status", "problem"),
    [
        (["--", "/nonexistent/command"], 127, os.strerror(2)),
        (["--", "/etc/passwd"], 126, os.strerror(13)),
        (["--broker", "nonsense", "--", "true"], 125, "no broker is called 'nonsense'"),
        (["--login", "me", "--", "true"], 125, "give 'me' one by --passcode or"),
        (["--login", "a\nb", "--", "true"], 125, "Choose another by --login or"),
        (["--port", "65536", "--", "true"], 125, "cannot listen on port 65536"),
        (["--broker", "command:mq", "--", "true"], 125, "tells its broker where to listen"),
        ([], 2, "the command to run is missing"),
        (["--"], 2, "the command to run is missing"),
    ],
)
def test_run_tells_what_it_cannot_run(arguments: list[str], status: int, problem: str) -> None:
    assert problem in run_process("run", *arguments, status=status)


#: Prints the signal that it receives, and ends with a special status.
LISTEN = """
import os, signal, sys
wanted = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGQUIT}
signal.pthread_sigmask(signal.SIG_BLOCK, wanted)  # none is lost that comes before it waits
print("ready", flush=True)
print(signal.sigwait(wanted).name, flush=True)
sys.exit(9)
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGQUIT"])
def test_run_hands_signals_on_to_the_command(name: str) -> None:
    with subprocess.Popen(
        [*COMMAND, "run", "--", sys.executable, "-c", LISTEN],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.Signals[name])
        assert process.wait(DEADLINE_S) == 9
        assert process.stdout.read() == f"{name}\n"


def test_run_that_is_ended_before_the_command_begins_leaves_nothing(tmp_path: Path) -> None:
    temporary, data = tmp_path / "temporary", tmp_path / "data"
    temporary.mkdir()
    # The broker is a standby as long as its data is locked, and is not ready.
    lock = DirectoryLock(data)
    assert lock.try_acquire()
    with subprocess.Popen(
        [*COMMAND, "run", f"--broker-argument=--data={data}", "--", "touch", str(tmp_path / "ran")],
        env={**environment(), "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        # The directory of the starting broker.
        assert wait_until(lambda: list(temporary.iterdir()), DEADLINE_S)
        process.send_signal(signal.SIGTERM)
        status = process.wait(DEADLINE_S)
    lock.release()
    assert status == 128 + signal.SIGTERM
    assert wait_until(lambda: not list(temporary.iterdir()), DEADLINE_S)
    assert not (tmp_path / "ran").exists()
