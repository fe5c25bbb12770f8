"""Brokers are forked from a process that has imported Twisted; only the time shows it."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stompkit.testing import LaunchConfig, RunningBroker, launch
from stompkit.testing.launching.polling import wait_until
from tests.testing.launched import pids

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux is forked on")
CONFIG = LaunchConfig(name="stompkit")
#: Limit for the modules of this package that a launched broker imports before its first client.
MOST_OWN_MODULES = 185


def status(pid: int, name: str) -> str:
    """Return a field of Linux's status of a process."""
    text = Path(f"/proc/{pid}/status").read_text()
    found = re.search(rf"^{name}:\s*(.*)$", text, re.MULTILINE)
    assert found is not None
    return found[1]


def environment(pid: int) -> dict[str, str]:
    """Return the initial environment of a process."""
    pairs = os.fsdecode(Path(f"/proc/{pid}/environ").read_bytes()).split("\0")
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)


def server_of(broker: RunningBroker) -> int:
    """Return the process from which a broker's guard was forked."""
    (pid,) = pids(broker)
    return int(status(int(status(pid, "PPid")), "PPid"))


def test_brokers_are_of_one_process() -> None:
    with launch(CONFIG) as one, launch(CONFIG) as other:
        assert server_of(one) == server_of(other)
        assert pids(one) != pids(other)
        assert one.port != other.port


def test_a_broker_has_what_its_test_has_at_that_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables, limits, processors and the umask may change between two brokers."""
    processors = os.sched_getaffinity(0)
    first = {min(processors)}
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with launch(CONFIG) as before:
        monkeypatch.setenv("STOMPKIT_OF_A_TEST", "yes")
        mask = os.umask(0o077)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit - 1, most))
        os.sched_setaffinity(0, first)
        try:
            with launch(CONFIG) as after:
                (old,), (new,) = pids(before), pids(after)
                assert "STOMPKIT_OF_A_TEST" not in environment(old)
                assert environment(new)["STOMPKIT_OF_A_TEST"] == "yes"
                assert status(new, "Umask") == "0077"
                assert os.sched_getaffinity(new) == first
                files = Path(f"/proc/{new}/limits").read_text()
                assert re.search(rf"^Max open files +{limit - 1} ", files, re.MULTILINE)
                # An earlier broker continues to run.
                before.client().disconnect()
        finally:
            os.umask(mask)
            os.sched_setaffinity(0, processors)
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))


def test_a_broker_has_no_descriptor_of_another() -> None:
    with launch(CONFIG) as one, launch(CONFIG) as other:
        links = [
            {
                os.readlink(each)
                for each in Path(f"/proc/{pid}/fd").iterdir()
                if not each.name.isdigit() or int(each.name) > 2
            }
            for broker in (one, other)
            for pid in pids(broker)
        ]
        shared = {each for each in set.intersection(*links) if not each.startswith("anon_inode")}
        assert shared <= {"/dev/null"}


def test_a_server_that_is_killed_takes_its_brokers_along_and_is_replaced() -> None:
    with launch(CONFIG) as broker:
        (pid,) = pids(broker)
        server = server_of(broker)
        os.kill(server, signal.SIGKILL)
        assert wait_until(lambda: not Path(f"/proc/{pid}").exists(), 30.0)
        with launch(CONFIG) as other:
            assert server_of(other) != server
            other.client().disconnect()


def test_where_no_process_can_be_forked_one_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOMPKIT_NO_FORK", "1")
    with launch(CONFIG) as broker:
        (pid,) = pids(broker)
        assert b"twisted" in Path(f"/proc/{pid}/cmdline").read_bytes()
        broker.client().disconnect()


def test_how_a_broker_ended_is_known() -> None:
    with launch(CONFIG) as broker:
        (pid,) = pids(broker)
        os.kill(pid, signal.SIGKILL)
        assert wait_until(lambda: not broker.is_running, 30.0)


def test_a_broker_in_memory_starts_without_other_stores_and_front_ends() -> None:
    """Imports take most of the time to the first test; modules are counted, not seconds."""
    imported = modules_after("import stompkit.testing.server.forkable")
    unused = {"sqlalchemy", "wsproto", "prometheus_client", "pyarrow", "pytest", "hypothesis"}
    assert imported.isdisjoint(unused)
    assert "stompkit.server.stores.sqlalchemy" not in imported
    folders = ("stompkit.server.beanstalk", "stompkit.server.websocket", "stompkit.server.admin")
    assert not [name for name in imported if name.startswith(folders)]
    own = [name for name in imported if name.partition(".")[0] == "stompkit"]
    assert len(own) <= MOST_OWN_MODULES


def test_a_program_with_many_files_has_a_server_all_the_same() -> None:
    program = """if True:
        import os
        from stompkit.testing import LaunchConfig, launch
        from tests.testing.launching.test_forking import server_of
        files = [open(os.devnull) for _ in range(1_100)]
        with launch(LaunchConfig()) as one, launch(LaunchConfig()) as other:
            one.client().close()
            print(server_of(one) == server_of(other) != os.getpid())
    """
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "True\n"


def test_serve_in_memory_imports_no_lmdb() -> None:
    imported = modules_after("import stompkit._commands.broker.serve")
    assert "stompkit.server.domain.broker" in imported
    assert "lmdb" not in imported
    assert "stompkit.server.stores.lmdb" not in imported


def modules_after(statement: str) -> set[str]:
    """Return the modules that a new interpreter has imported after a statement."""
    program = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())
