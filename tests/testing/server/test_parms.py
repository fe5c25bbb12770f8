"""MorbidQ's modules of users and rights, with the emulated broker."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stompkit.testing import LaunchConfig, launch
from stompkit.testing.client import BrokerSaidError, RefusedError, StompClient
from stompkit.testing.plugin import BrokerFactory

#: Each group has a home with all rights, and every user may read public destinations.
MODULE = """
class Parms(object):
    def checker_config(self):
        return {checker}

    def group_config(self):
        return lambda user: ["all", "staff"] if user == "usr1" else ["all"]

    def get_group_access_rights(self):
        def rights(groups, destination):
            found = set()
            for group in groups:
                if destination.startswith("/queue/" + group):
                    found |= set("crw")
            if destination.startswith("/queue/public"):
                found |= set("r")
            return found
        return rights
"""
Connect = Callable[[str, str], StompClient]


@pytest.fixture
def morbidq(tmp_path: Path, stomp_broker_factory: BrokerFactory) -> Callable[..., Connect]:
    """Launch a broker with a module whose ``checker_config`` returns this; yield logged-in clients.

    The users' file, if it is named, has two users. The login is the one to ask for readiness with.
    """

    def start(checker: str, login: str = "", passcode: str = "") -> Connect:
        (tmp_path / "users").write_text("usr1;sesame\nUsr2;open\n")
        module = tmp_path / "parms.py"
        module.write_text(MODULE.format(checker=checker))
        command = f"{sys.executable} -m twisted stompkit-test --quirk morbidq --parms {module}"
        broker = stomp_broker_factory(
            f"command:{command} --endpoint tcp:{{port}}:interface={{host}}",
            login=login,
            passcode=passcode,
        )

        def connect(login: str, passcode: str) -> StompClient:
            return StompClient.connect(
                broker.host, broker.port, version="1.0", login=login, passcode=passcode
            )

        return connect

    return start


def test_groups_have_rights(morbidq: Callable[..., Connect]) -> None:
    connect = morbidq("{'sec_type': 'any'}")
    with connect("usr1", "") as staff, connect("usr2", "") as other:
        for client in (staff, other):
            client.subscribe("/queue/all/news", receipt=False)
        staff.subscribe("/queue/staff/news", receipt=False)
        staff.send("/queue/staff/news", "for us", receipt=False)
        assert staff.receive().body == b"for us"
        for command, said in [("SEND", "WRITE error"), ("SUBSCRIBE", "READ error")]:
            other.write(f"{command}\ndestination:/queue/staff/news\n\n\0".encode())
            with pytest.raises(BrokerSaidError, match=said):
                other.receive()
        other.write(b"SEND\ndestination:/queue/public/new\n\n\0")
        with pytest.raises(BrokerSaidError, match="CREATE error"):
            other.receive()
        other.send("/queue/all/news", "still there", receipt=False)


@pytest.mark.parametrize(
    ("checker", "good", "bad"),
    [
        ("{'sec_type': 'test', 'id_count': 2}", ("usr1", "pwd1"), ("usr2", "pwd2")),
        ("{'sec_type': 'test'}", ("usr9", "pwd9"), ("usr9", "pwd8")),
        ("{'sec_type': 'file', 'filename': 'users', 'delim': ';'}", ("usr1", "sesame"), ("a", "")),
        (
            "{'sec_type': 'file', 'filename': 'users', 'delim': ';', 'caseSensitive': True}",
            ("Usr2", "open"),
            ("usr2", "open"),
        ),
    ],
)
def test_logins_are_checked(
    morbidq: Callable[..., Connect], checker: str, good: tuple[str, str], bad: tuple[str, str]
) -> None:
    connect = morbidq(checker, *good)
    connect(*good).close()
    with pytest.raises(RefusedError, match="Invalid ID or password"):
        connect(*bad)


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("import nonsense_that_is_not_there", "ModuleNotFoundError"),
        ("Parms = 1", "a class Parms with checker_config, group_config"),
        (MODULE.format(checker="{'sec_type': 'pam'}"), "there are any, test and file"),
        (MODULE.format(checker="{'sec_type': 'file'}"), "there is no file of users"),
    ],
)
def test_a_module_that_is_none_is_told(tmp_path: Path, module: str, said: str) -> None:
    path = tmp_path / "parms.py"
    path.write_text(module)
    config = LaunchConfig(quirks="morbidq", arguments=("--parms", str(path)))
    with pytest.raises(Exception, match=said), launch(config):
        pass
