"""``stompkit check-config`` tries what a start would do."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from stompkit._commands import main
from stompkit.server.login.password_files import Cost, hash_passcode
from stompkit.server.operations import DirectoryLock
from tests.server.certificates import Authority

ANY_PORT = '[[listen]]\nendpoint = "tcp:0:interface=127.0.0.1"\n'


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory that every user can read."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def checked(folder: Path, text: str, *options: str, status: int = 0) -> list[str]:
    """Return the lines that the command prints about a file with this text, without its name."""
    (folder / "f.toml").write_text(text)
    output = StringIO()
    with contextlib.chdir(folder), redirect_stdout(output), redirect_stderr(output):
        assert main(["check-config", *options, "f.toml"]) == status
    return [line.replace("f.toml: ", "") for line in output.getvalue().splitlines()]


def checked_as(user: str, folder: Path, text: str, status: int = 0) -> str:
    """Return what a process prints that checks as a user."""
    (folder / "f.toml").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "stompkit", "check-config", "--user", user, "f.toml"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stdout
    return done.stdout


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            f'{ANY_PORT}[store]\npath = "f.toml/data"',
            "[store] path: cannot keep messages in FOLDER/f.toml/data: FOLDER/f.toml is a file."
            " Name a directory",
        ),
        (
            f'{ANY_PORT}[store]\nurl = "sqlite:///f.toml/db"',
            "[store] url: cannot write f.toml/db: FOLDER/f.toml is a file. Name a directory",
        ),
        (
            f'{ANY_PORT}[log]\nfile = "missing/log"',
            "[log] file: cannot log to FOLDER/missing/log: there is no directory FOLDER/missing",
        ),
        (
            f'{ANY_PORT}[log]\nfile = "."',
            "[log] file: cannot log to FOLDER: it is a directory",
        ),
        (
            '[[listen]]\nendpoint = "tcp:0:interface=192.0.2.1"',
            "[[listen]] #1 endpoint: cannot listen on tcp:0:interface=192.0.2.1: this machine does"
            " not have the address 192.0.2.1",
        ),
        (
            '[[listen]]\nendpoint = "unix:f.toml/socket"',
            "[[listen]] #1 endpoint: cannot listen on unix:f.toml/socket: FOLDER/f.toml is a file."
            " Name a directory",
        ),
        (
            f'{ANY_PORT}[admin]\nendpoints = ["tcp:PORT:interface=127.0.0.1"]\n'
            '[beanstalk]\nendpoints = ["tcp:PORT:interface=127.0.0.1"]',
            "[admin] endpoints: tcp:PORT:interface=127.0.0.1 is also the address of [beanstalk]"
            " endpoints",
        ),
    ],
)
def test_what_would_prevent_the_start_is_reported(text: str, problem: str, folder: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    said = checked(folder, text.replace("PORT", port), status=1)
    assert [each for each in said if not each.startswith("warning: ")] == [
        problem.replace("FOLDER", str(folder)).replace("PORT", port)
    ]


def test_a_database_that_does_not_answer_is_reported(folder: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"postgresql://joe:sesame@127.0.0.1:{probe.getsockname()[1]}/db"
        said = checked(folder, f'{ANY_PORT}[store]\nurl = "{url}"', status=1)
    assert [each for each in said if each.startswith("[store] url: ")]
    assert "sesame" not in "".join(said)
    assert "warning: this file contains a password: every user of this machine can read" in said[1]


def test_the_file_with_the_url_of_the_database_is_a_secret(folder: Path) -> None:
    file = folder / "url"
    file.write_text(f"sqlite:///{folder}/messages.sqlite")
    file.chmod(0o644)
    settings = f'{ANY_PORT}[store]\nurl = "file:{file}"'
    assert any("[store] url: every user" in each for each in checked(folder, settings))
    file.chmod(0o600)
    assert not any("[store] url" in each for each in checked(folder, settings))


def test_a_port_and_a_directory_in_use_are_warnings(folder: Path) -> None:
    lock = DirectoryLock(folder / "data")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        text = f'[[listen]]\nendpoint = "tcp:{port}:interface=127.0.0.1"\n[store]\npath = "data"'
        assert lock.try_acquire()
        said = checked(folder, text)
        lock.release()
        assert said == [
            f"warning: [store] path: {folder}/data is in use by process {os.getpid()} on"
            f" {socket.gethostname()}; a second broker waits for its end",
            f"warning: [[listen]] #1 endpoint: 127.0.0.1:{port} is in use, by a running broker or"
            " by another program: `ss -ltnp` shows which",
            "OK",
        ]
        assert len(checked(folder, text, "--strict", status=1)) == 1
        document = json.loads(checked(folder, text, "--json")[0])
    assert (document["is_ok"], document["problems"], len(document["warnings"])) == (True, [], 1)


def test_nothing_is_created_or_changed(folder: Path) -> None:
    text = f'{ANY_PORT}[store]\npath = "data/deep"\n[log]\nfile = "log"\n'
    before = sorted(folder.rglob("*"))
    assert checked(folder, text) == ["OK"]
    assert sorted(folder.rglob("*")) == [*before, folder / "f.toml"]
    database = ANY_PORT + '[store]\nurl = "sqlite:///db.sqlite"\n'
    assert checked(folder, database) == ["OK"]
    assert not (folder / "db.sqlite").exists()


def test_files_with_secrets_that_everybody_can_read_are_warnings(folder: Path) -> None:
    keys = folder / "keys"
    keys.mkdir()
    certificate = Path(Authority(keys, "ca").server(last_day=20))
    users, token = folder / "users", folder / "token"
    users.write_text(f"ann:{hash_passcode('sesame', Cost(log2_n=1, r=1, p=1))}\n")
    token.write_text("0123456789abcdef0123456789abcdef\n")
    text = (
        f'[[listen]]\nendpoint = "stomps:0:interface=127.0.0.1:certificate={certificate}"\n'
        f'[auth]\ncheckers = ["stompkit:users"]\n'
        '[admin]\nendpoints = ["unix:admin"]\ntoken_file = "token"\n'
    )
    for path, mode in ((users, 0o644), (token, 0o666), (certificate, 0o604)):
        path.chmod(mode)
    assert checked(folder, text) == [
        "warning: [auth] checkers: every user of this machine can read users (mode 644): chmod 640"
        " users",
        "warning: [admin] token_file: every user of this machine can read and change token (mode"
        " 666): chmod 640 token",
        f"warning: [[listen]] #1 endpoint: every user of this machine can read {certificate} (mode"
        f" 604): chmod 640 {certificate}",
        "OK",
    ]
    for path in (users, token, certificate):
        path.chmod(0o640)
    assert checked(folder, text) == ["OK"]


def test_an_expired_certificate_is_a_warning(folder: Path) -> None:
    certificate = Authority(folder, "ca").server(last_day=-0.5)
    certificate.chmod(0o640)
    text = f'[[listen]]\nendpoint = "stomps:0:interface=127.0.0.1:certificate={certificate}"\n'
    assert checked(folder, text) == [
        f"warning: [[listen]] #1 endpoint: the certificate in {certificate} has expired, so that"
        " clients refuse it: renew it",
        "OK",
    ]


@pytest.mark.parametrize("place", ["[[listen]] #1 endpoint", "[admin] endpoints"])
def test_a_certificate_that_expires_soon_is_a_warning(folder: Path, place: str) -> None:
    authority = Authority(folder, "ca")
    soon, late = authority.server(last_day=13.9), authority.server(last_day=14.1)
    for path in (soon, late):
        path.chmod(0o640)
    ours, other = (soon, late) if place.startswith("[[listen]]") else (late, soon)
    text = (
        f'[[listen]]\nendpoint = "stomps:0:interface=127.0.0.1:certificate={ours}"\n'
        f'[admin]\nendpoints = ["ssl:0:interface=127.0.0.1:privateKey={other}"]\n'
    )
    warning, ok = checked(folder, text)
    assert warning.startswith(f"warning: {place}: the certificate in {soon} expires on 2")
    assert warning.endswith(" UTC, after which clients refuse it: renew it")
    assert ok == "OK"


OPEN = (
    "warning: [[{0}]] #1 endpoint: tcp:0 is open to everybody who can reach this machine, since no"
    " login is checked. Add [auth] with checkers, or anonymous = true if that is meant"
)
NOBODY = (
    "warning: [[rights]] #1: it allows nobody anything, since no login is checked and no client has"
    " a name. Add [auth] with checkers"
)
RIGHT = '[[rights]]\ndestination = ">"\nallow = ["read"]\n'


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ('[[listen]]\nendpoint = "tcp:0"', OPEN.format("listen")),
        (f'{ANY_PORT}[[websocket]]\nendpoint = "tcp:0"', OPEN.format("websocket")),
        (
            f'{ANY_PORT}[store]\nsync = "never"',
            "warning: [store]: there is neither path nor url, so messages are in memory only and a"
            " restart loses them. Add path, or remove [store]",
        ),
        (f'{ANY_PORT}{RIGHT}users = ["bob"]', NOBODY),
        (f'{ANY_PORT}{RIGHT}groups = ["shops"]', NOBODY),
        (
            f'{ANY_PORT}[auth]\ncheckers = ["stompkit:users"]\n{RIGHT}groups = ["stafs", "night"]\n'
            '[auth.groups]\nnight = ["eve"]',
            'warning: [[rights]] #1 groups: nobody is in the group "stafs"; did you mean staff?',
        ),
    ],
)
def test_what_is_probably_not_meant_is_a_warning(text: str, warning: str, folder: Path) -> None:
    (folder / "users").write_text(f"ann:{hash_passcode('sesame', Cost(1, 1, 1))}:staff\n")
    (folder / "users").chmod(0o600)
    assert checked(folder, text) == [warning, "OK"]
    assert checked(folder, text, "--strict", status=1) == [warning]


@pytest.mark.parametrize(
    "text",
    [
        '[[listen]]\nendpoint = "tcp:0"\n[auth]\nanonymous = true',
        f'{ANY_PORT}[store]\nkind = "none"',
        f"{ANY_PORT}{RIGHT}",
        f'{ANY_PORT}[auth]\ncertificate_users = true\n{RIGHT}users = ["bob"]',
        f'{ANY_PORT}[auth.http]\nurl = "http://127.0.0.1:1/"\n{RIGHT}groups = ["shops"]',
    ],
)
def test_what_may_be_meant_is_no_warning(text: str, folder: Path) -> None:
    assert checked(folder, text) == ["OK"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can check as another user")
def test_root_checks_as_the_user_of_the_broker(folder: Path) -> None:
    (folder / "data").mkdir()
    text = f'{ANY_PORT}[store]\npath = "data"'
    assert checked(folder, text) == ["OK"]
    assert checked_as("nobody", folder, text, status=1) == (
        f"f.toml: [store] path: cannot keep messages in {folder}/data: user nobody cannot write to"
        f" {folder}/data: Permission denied. Change its owner, or start the broker as another"
        " user\n"
    )
    shutil.chown(folder / "data", "nobody")
    assert checked_as("nobody", folder, text) == "f.toml: OK\n"
    (folder / "data" / "messages.lmdb").mkdir(mode=0o755)
    data = folder / "data" / "messages.lmdb" / "data.mdb"
    data.touch(mode=0o600)
    shutil.chown(data.parent, "nobody")
    assert f"user nobody cannot write {data}. Change the owner of {folder}/data" in checked_as(
        "nobody", folder, text, status=1
    )
    shutil.chown(data, "nobody")
    assert checked_as("nobody", folder, text) == "f.toml: OK\n"
    assert "there is no user 'nosuch'" in checked_as("nosuch", folder, text, status=2)


@pytest.mark.parametrize("library", ["OpenSSL", "cryptography"])
def test_tls_without_its_extra_names_the_extra(tmp_path: Path, library: str) -> None:
    (tmp_path / "stompkit.toml").write_text(
        '[[listen]]\nendpoint = "stomps:61614:certificate=x.pem"\n'
    )
    program = (
        f"import sys; sys.modules[{library!r}] = None\n"
        "from stompkit._commands import main; sys.exit(main(sys.argv[1:]))\n"
    )
    for arguments in (
        ["check-config", "stompkit.toml"],
        ["serve", "--endpoint", "stomps:61614:certificate=x.pem"],
    ):
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode != 0
        assert "No module" not in done.stderr
        assert f"TLS needs {library}: pip install 'stompkit[tls]'\n" in done.stderr
