"""Brokers can be launched in any environment, or the error names the problem."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from stompkit.testing import BrokerError, BrokerStartError, LaunchConfig, launch
from stompkit.testing.launching.brokers import LAUNCHERS, launcher_for
from stompkit.testing.launching.fetched import CACHE_VARIABLE, cache_folder
from tests.effort import in_matrix
from tests.namespaces import unshared
from tests.testing.launched import (
    FETCHED,
    ROOT,
    needs_proc,
    processes_below,
    require,
)

#: Brokers with a fast start are tested in every run.
QUICK = ("stompkit", "coilmq")
BROKERS = [
    name if name in QUICK else in_matrix(name) for name in dict.fromkeys((*LAUNCHERS, *FETCHED))
]
#: On a busy machine a Java or Erlang virtual machine starts slowly.
START_S = 180.0
FOLDERS = {
    "blank": "a b",
    "backslash": "a\\b",
    "percent": "a%20b%d%n",
    "dollar": "a$HOME ${user.home} $$ $(id)",
    "not ASCII": "\u00e4\u20ac\U0001d11e",
    "200 characters": "x" * 200,
    "quotes": "a'b\"c`d",
    "of URLs": "a#b?c=d;e,f:g",
    "brackets": "{x}[y](z)<&>*!~|^",
}
#: Unsupported requests of some brokers, and their messages.
PROBLEMS = {
    ("rabbitmq", "quotes"): "cannot measure the disk of a directory with ' or \"",
    ("rabbitmq:4", "quotes"): "cannot measure the disk of a directory with `",
}


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """A directory for temporary files of brokers."""
    path = tmp_path / "t"
    path.mkdir()
    return path


@needs_proc
@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("name", BROKERS)
def test_a_broker_is_launched_in_any_folder(
    name: str, folder: str, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a user and a store, both of which are files there."""
    place = temporary / FOLDERS[folder]
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    features = launcher_for(require(name)).features
    login, passcode = (None, None) if name == "morbidq" else ("me", "secret")
    config = LaunchConfig(
        name=name,
        login=login,
        passcode=passcode,
        persistent="persistent" in features,
        control="control" in features,
        start_timeout_s=START_S,
    )
    problem = PROBLEMS.get((name, folder))
    if problem is not None:
        with pytest.raises(BrokerError, match=problem):
            launch(config)
    else:
        with launch(config) as broker:
            assert broker.directory is not None
            assert broker.directory.parent == place
            with broker.client() as client:
                if name != "morbidq":
                    client.send("/queue/a", "kept", persistent="true")
                    client.subscribe("/queue/a")
                    assert client.receive().body == b"kept"
    assert processes_below(temporary) == []
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("folder", ["a\nb", os.fsdecode(b"a\xffb")], ids=["line end", "not UTF-8"])
def test_folder_that_a_broker_cannot_use_is_named(
    folder: str, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = temporary / folder
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    config = LaunchConfig(name=require("coilmq"), persistent=True, start_timeout_s=START_S)
    with pytest.raises(BrokerStartError) as caught:
        launch(config)
    [remedy] = caught.value.attempt.remedies
    assert remedy.startswith(
        "name a folder whose path is UTF-8 without tabs or line ends, by TMPDIR"
    )


@pytest.mark.parametrize("name", BROKERS)
def test_a_broker_needs_no_home(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No user, root included, can write to the named home."""
    require(name)
    monkeypatch.setenv(CACHE_VARIABLE, str(cache_folder()))
    monkeypatch.setenv("HOME", "/proc")
    for variable in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    with launch(LaunchConfig(name=name, start_timeout_s=START_S)) as broker, broker.client():
        pass


#: Launches a broker that does not start, and prints the error.
FAILING = """
from pathlib import Path
from stompkit.testing import BrokerStartError, LaunchConfig, launch
try:
    launch(LaunchConfig(arguments=("--data", "/dev/null/x")))
except BrokerStartError as error:
    print(error)
    assert error.attempt.log_path.read_text() == error.attempt.log
"""


def test_a_failed_launch_leaves_its_log_until_the_tests_end(temporary: Path) -> None:
    said = run([sys.executable, "-c", FAILING], temporary)
    assert "/dev/null is a file, not a directory" in said
    assert f"log:     {temporary}/stompkit-" in said
    assert "LaunchConfig(directory=...)" in said
    assert list(temporary.iterdir()) == []


def test_a_named_folder_of_a_failed_launch_is_kept(temporary: Path) -> None:
    config = LaunchConfig(arguments=("--hurry",), directory=temporary / "d")
    with pytest.raises(BrokerError) as caught:
        launch(config)
    assert "removed when" not in str(caught.value)
    assert (temporary / "d" / "broker.log").exists()


#: Launches a broker, and prints its address, or the error.
PROGRAM = """
import sys
from stompkit.testing import BrokerError, LaunchConfig, launch
config = LaunchConfig(name=sys.argv[1], start_timeout_s=180.0, frames=True)
try:
    with launch(config) as broker, broker.client():
        print("launched at", broker.host)
except BrokerError as error:
    print(error)
"""


def run(command: list[str], temporary: Path) -> str:
    """Run a program that launches a broker; return what it prints."""
    environment = os.environ | {"TMPDIR": str(temporary), "PYTHONPATH": str(ROOT)}
    environment[CACHE_VARIABLE] = str(cache_folder())
    done = subprocess.run(
        command, env=environment, cwd="/", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def as_user(number: int) -> list[str]:
    """Return the prefix of a command that runs it as a user who can read but not write."""
    capabilities = "+dac_read_search"
    return [
        *("setpriv", "--reuid", str(number), "--regid", str(number), "--clear-groups"),
        *("--inh-caps", capabilities, "--ambient-caps", capabilities),
    ]


@needs_proc
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run programs as another user")
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv of util-linux")
@pytest.mark.parametrize("name", BROKERS)
def test_another_user_can_launch_a_broker(name: str) -> None:
    require(name)
    nobody = 65_534
    # Not within the folder of pytest, which only its user can enter.
    with tempfile.TemporaryDirectory() as folder:
        os.chown(folder, nobody, nobody)
        said = run([*as_user(nobody), sys.executable, "-c", PROGRAM, name], Path(folder))
        assert os.listdir(folder) == []
    if name == "rabbitmq:4":
        assert "only root can run a server of a Debian system in a folder" in said
    else:
        assert said == "launched at 127.0.0.1\n"


NEEDING_IPV4 = {
    "coilmq": "CoilMQ cannot listen on ::1, since it knows IPv4 only",
    "rabbitmq": "RabbitMQ cannot run without IPv4: epmd,",
    "rabbitmq:4": "RabbitMQ cannot run without IPv4: epmd,",
}
#: Removes IPv4 from a network namespace, then runs the rest.
WITHOUT_IPV4 = 'ip link set lo up && ip address delete 127.0.0.1/8 dev lo && exec "$@"'


@needs_proc
@pytest.mark.parametrize("name", BROKERS)
def test_a_broker_without_ipv4(name: str, temporary: Path) -> None:
    require(name)
    within = ["unshare", "--net", "sh", "-c", WITHOUT_IPV4, "sh"]
    has_ipv6 = "import socket; socket.create_server(('::1', 0), family=socket.AF_INET6)"
    try:
        subprocess.run([*within, sys.executable, "-c", has_ipv6], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs root, unshare and ip (apt-get install iproute2), and IPv6")
    said = run([*within, sys.executable, "-c", PROGRAM, name], temporary)
    assert said.startswith(NEEDING_IPV4.get(name, "launched at ::1\n"))
    assert list(temporary.iterdir()) == []


#: Uses a proxy and a replay on the addresses that they choose.
BESIDE_BROKERS = """
import sys
from stompkit.testing import LaunchConfig, launch
from stompkit.testing.client import StompClient
from stompkit.testing.transcripts import ReplayServer
with launch(LaunchConfig(frames=True)) as broker, broker.proxy() as proxy:
    with broker.client(via=proxy) as client:
        client.disconnect()
    broker.frames.settle()
    with ReplayServer(broker.frames.transcript()) as replay:
        with StompClient.connect(replay.host, replay.port, vhost=broker.vhost) as client:
            client.disconnect()
    print(broker.host, proxy.host, replay.host)
"""


@needs_proc
def test_proxies_and_replays_without_ipv4(temporary: Path) -> None:
    within = unshared("--net", WITHOUT_IPV4)
    said = run([*within, sys.executable, "-c", BESIDE_BROKERS, "stompkit"], temporary)
    assert said == "::1 ::1 ::1\n"


#: Launches a broker with this many free descriptors, from none on, until that succeeds.
WITH_FEW_DESCRIPTORS = """
import os, resource, sys
from stompkit.testing import BrokerStartError, LaunchConfig, launch
free, hard = 0, resource.getrlimit(resource.RLIMIT_NOFILE)[1]
while True:
    is_open = os.dup(0)
    os.close(is_open)
    resource.setrlimit(resource.RLIMIT_NOFILE, (is_open + free, hard))
    try:
        with launch(LaunchConfig(name=sys.argv[1])) as broker:
            print("launched with", free)
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            break
    except BrokerStartError as error:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        if "ulimit -n" not in str(error):
            print(error)
    free += 1
"""


@needs_proc
@pytest.mark.parametrize("name", ["stompkit", "coilmq"])
def test_a_broker_without_free_descriptors(name: str, temporary: Path) -> None:
    """From none to as many as needed: each error names the limit to raise."""
    said = run([sys.executable, "-c", WITH_FEW_DESCRIPTORS, require(name)], temporary)
    assert said.startswith("launched with "), said
    assert list(temporary.iterdir()) == []


def test_a_folder_that_can_not_be_written_to_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/proc")
    with pytest.raises(BrokerError, match=r"did not start: it was not run: .*/proc") as caught:
        launch(LaunchConfig())
    assert "TMPDIR or LaunchConfig(directory=...)" in str(caught.value)
