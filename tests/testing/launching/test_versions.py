"""Versions of brokers: the launched one, and the message if it is missing."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from stompkit.testing import BrokerError, BrokerMissingError, LaunchConfig, launch
from stompkit.testing.launching.brokers import kind_of, launcher_for
from stompkit.testing.launching.brokers.releases import choose
from stompkit.testing.launching.fetched import Fetched, cache_folder, fetched, is_of_version


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder."""
    monkeypatch.setenv("STOMPKIT_SERVERS", str(tmp_path))
    return tmp_path


def add(cache: Path, name: str, server: str, version: str) -> Fetched:
    """Put a server into the cache folder."""
    folder = cache / f"{name}-files"
    folder.mkdir()
    made = Fetched(name, server, version, folder)
    made.save()
    return made


@pytest.mark.parametrize(
    ("wanted", "version"),
    [
        ("", "3.10.8"),
        ("4", "4.10.0"),
        ("4.3", "4.3.6"),
        ("4.1", None),
        ("3", "3.10.8"),
        ("3.1", None),
    ],
)
def test_the_newest_release_of_the_version_is_launched(
    cache: Path, wanted: str, version: str | None
) -> None:
    for number in ("4.3.6", "4.10.0", "4.9.1"):
        add(cache, f"rabbitmq-{number}", "rabbitmq", number)
    add(cache, "artemis", "artemis", "4.11.0")
    found = choose("rabbitmq", wanted, "3.10.8")
    assert (found and found.version) == version


def test_without_an_installed_release_it_is_the_newest_that_was_fetched(cache: Path) -> None:
    assert choose("rabbitmq", "", None) is None
    added = add(cache, "rabbitmq-4", "rabbitmq", "4.3.6")
    found = choose("rabbitmq", "", None)
    assert found is not None
    assert found.fetched == added


@pytest.mark.parametrize("record", ["", "{}", "[]", '{"server": "rabbitmq", "version": "4"}', "\0"])
def test_a_record_that_is_not_whole_is_none(cache: Path, record: str) -> None:
    added = add(cache, "rabbitmq-4", "rabbitmq", "4.3.6")
    assert fetched() == [added]
    (cache / "rabbitmq-4.json").write_text(record)
    assert fetched() == []


def test_a_server_whose_files_are_gone_is_none(cache: Path) -> None:
    add(cache, "rabbitmq-4", "rabbitmq", "4.3.6").folder.rmdir()
    assert fetched() == []


@pytest.mark.parametrize(
    ("version", "wanted"), [("4.3.6", "4.3.6"), ("4.3.6", "4"), ("4.3.6", ""), ("", "")]
)
def test_a_version_is_one_of_those_that_it_begins_with(version: str, wanted: str) -> None:
    assert is_of_version(version, wanted)


@pytest.mark.parametrize(("version", "wanted"), [("4.30.6", "4.3"), ("", "4"), ("4", "4.3")])
def test_a_version_is_none_of_the_others(version: str, wanted: str) -> None:
    assert not is_of_version(version, wanted)


def test_the_cache_is_the_users_unless_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("STOMPKIT_SERVERS", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() == Path("/home/me/.cache/stompkit/servers")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "stompkit" / "servers"
    monkeypatch.setenv("STOMPKIT_SERVERS", "/srv/servers")
    assert cache_folder() == Path("/srv/servers")


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("rabbitmq:99", "make servers SERVERS=rabbitmq-4"),
        ("activemq:99", "make servers SERVERS=activemq-6"),
        ("artemis:99", "make servers SERVERS=artemis"),
        ("artemis", "make servers SERVERS=artemis"),
    ],
)
def test_a_version_that_is_not_here_is_told_with_how_to_fetch_it(
    cache: Path, name: str, remedy: str
) -> None:
    with pytest.raises(BrokerMissingError) as caught:
        launch(LaunchConfig(name=name))
    assert caught.value.name == name
    assert caught.value.reason.endswith(remedy)


def test_the_versions_that_are_here_are_told(cache: Path) -> None:
    add(cache, "artemis", "artemis", "2.40.0")
    with pytest.raises(
        BrokerMissingError, match=r"no version 2\.4 was found, only 2\.40\.0 \(fetched\)"
    ):
        launch(LaunchConfig(name="artemis:2.4"))


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("rabbitmq:", "'' is no version; expected numbers, as in rabbitmq:4"),
        ("rabbitmq:four", "'four' is no version"),
        ("rabbitmq:4:3", "'4:3' is no version"),
        ("stompkit:2", "only activemq, artemis, rabbitmq can be launched in a version"),
        ("hornetq:2", "no broker is called 'hornetq:2'; known: stompkit, coilmq"),
    ],
)
def test_a_version_that_makes_no_sense_is_told(name: str, problem: str) -> None:
    with pytest.raises(BrokerError, match=problem):
        launcher_for(name)


def test_a_command_has_no_version() -> None:
    assert kind_of("command:mq --port={port}") == "command:mq --port={port}"
    assert kind_of("rabbitmq:4") == "rabbitmq"


# Running a server of a system in a folder.


def test_a_program_of_another_system_needs_root(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(cache, "rabbitmq-4", "rabbitmq", "98.7")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(BrokerMissingError, match="only root can run a server of a Debian system"):
        launch(LaunchConfig(name="rabbitmq:98"))


def test_artemis_keeps_its_passcode_to_itself(tmp_path: Path, cache: Path) -> None:
    added = add(cache, "artemis", "artemis", "2.40.0")
    config = LaunchConfig(name="artemis", port=61613, login="a b", passcode="ü=#: \\n")
    prepared = launcher_for("artemis").prepare(config, tmp_path, lambda: 0)
    assert prepared.version == "2.40.0"
    assert str(added.folder / "lib" / "artemis-boot.jar") in prepared.command
    users = tmp_path / "etc" / "users.properties"
    assert stat.S_IMODE(users.stat().st_mode) == 0o600
    # As java.util.Properties reads it.
    text = users.read_text(encoding="ascii")
    assert text.encode().decode("unicode-escape") == "a b = ü=#: \\n\n"
    assert "ü=#" not in " ".join(prepared.command)


def test_artemis_refuses_a_passcode_that_it_would_decode(tmp_path: Path, cache: Path) -> None:
    add(cache, "artemis", "artemis", "2.40.0")
    config = LaunchConfig(name="artemis", port=61613, login="a", passcode="ENC(x)")
    with pytest.raises(BrokerError, match=r"begins with ENC\("):
        launcher_for("artemis").prepare(config, tmp_path, lambda: 0)
