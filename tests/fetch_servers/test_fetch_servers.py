"""``make servers`` without network or rights: scripts replace the programs that it runs."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from stompkit.testing.launching.fetched import Fetched, fetched
from tests.fetch_servers.__main__ import main
from tests.fetch_servers._catalogue import CATALOGUE
from tests.fetch_servers._commands import FetchError, run
from tests.fetch_servers._debian import MIRROR_VARIABLE, DebianServer, mirror_of, upstream_version

#: Replaces Maven: writes a library or an archive to the given path, unless a file forbids it.
MVN = """\
echo "$@" >> "$FAKE/calls"
if [ -e "$FAKE/broken" ]; then echo "[ERROR] Failed to resolve it"; exit 1; fi
for word in "$@"; do
    case $word in -DoutputDirectory=*) folder=${word#*=};; esac
done
case "$*" in
*copy-dependencies*) cp pom.xml "$FAKE" && echo jar > "$folder/activemq-broker-6.jar";;
*) mkdir -p top/lib && echo jar > top/lib/artemis-boot.jar && tar czf "$folder/a.tar.gz" top;;
esac
"""
#: Replaces unshare, and the programs in a namespace; checks that no service can start.
UNSHARE = """\
shift 4
case "$*" in
*debootstrap*)
    echo debootstrap >> "$FAKE/calls"
    for word in "$@"; do folder=$mirror; mirror=$word; done
    mkdir -p "$folder/usr/sbin" "$folder/etc" && echo "$mirror" > "$folder/mirror"
    [ ! -e "$FAKE/broken" ];;
*)
    folder=$1; shift
    "$folder/usr/sbin/policy-rc.d"
    echo "$? $*" >> "$FAKE/calls"
    case "$*" in *install*) [ ! -e "$FAKE/stale" ] || { rm "$FAKE/stale"; exit 100; };; esac;;
esac
"""
DPKG_QUERY = 'echo "$@" >> "$FAKE/asked"; printf 1:4.3.6+ds-1'

SERVER = DebianServer("rabbitmq-4", "rabbitmq", "sid", ("rabbitmq-server", "erlang"))


class Machine:
    """A cache folder, and a path with scripts of the test only."""

    def __init__(self, folder: Path) -> None:
        """Create both."""
        self.cache = folder / "cache"
        self.fake = folder / "fake"
        self.cache.mkdir()
        self.fake.mkdir()

    def install(self, **programs: str) -> None:
        """Put scripts on the path, with - for _ in their names."""
        for name, text in programs.items():
            path = self.fake / name.replace("_", "-")
            path.write_text(f"#!/bin/sh\n{text}\n")
            path.chmod(0o755)

    def mark(self, name: str) -> Path:
        """Create a file that a script checks."""
        path = self.fake / name
        path.touch()
        return path

    @property
    def calls(self) -> list[str]:
        """Return the calls of the scripts."""
        return (self.fake / "calls").read_text().splitlines()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine without any program for downloads."""
    made = Machine(tmp_path)
    monkeypatch.setenv("STOMPKIT_SERVERS", str(made.cache))
    monkeypatch.setenv("FAKE", str(made.fake))
    monkeypatch.setenv(MIRROR_VARIABLE, "http://mirror.example/debian")
    basics = ("sh", "cp", "mkdir", "tar", "gzip", "rm", "apt-config")
    for name in basics:
        if found := shutil.which(name):
            (made.fake / name).symlink_to(found)
    monkeypatch.setenv("PATH", str(made.fake))
    return made


# By Maven.


def test_a_server_is_fetched_once_and_listed(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.install(mvn=MVN)
    assert main(["activemq-6"]) == 0
    [found] = fetched("activemq")
    assert found.version == CATALOGUE["activemq-6"].about.partition(",")[0]
    assert [path.name for path in found.folder.iterdir()] == ["activemq-broker-6.jar"]
    project = (machine.fake / "pom.xml").read_text()
    assert f"<version>{found.version}</version>" in project
    assert "<artifactId>activemq-stomp</artifactId>" in project
    assert main(["activemq-6"]) == 0
    assert len(machine.calls) == 1
    written = capsys.readouterr().out
    assert f"{found.version} is there" in written
    assert written.splitlines()[-6:][1].split() == ["activemq-6", found.version]


def test_an_archive_is_unpacked_without_the_directory_that_all_is_in(machine: Machine) -> None:
    machine.install(mvn=MVN)
    assert main(["artemis"]) == 0
    [found] = fetched("artemis")
    assert (found.folder / "lib" / "artemis-boot.jar").exists()
    assert [path.name for path in machine.cache.iterdir() if path.name.endswith(".part")] == []


def test_what_fails_is_told_in_one_line_and_leaves_nothing(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.install(mvn=MVN)
    broken = machine.mark("broken")
    assert main(["activemq-6"]) == 1
    [line] = [line for line in capsys.readouterr().out.splitlines() if "left out" in line]
    log = machine.cache / "log" / "activemq-6.log"
    assert line == f"  left out: mvn failed: [ERROR] Failed to resolve it (all of it: {log})"
    assert fetched("activemq") == []
    broken.unlink()
    assert main(["activemq-6"]) == 0
    assert len(fetched("activemq")) == 1


def test_another_version_takes_the_place_of_the_old_one(machine: Machine) -> None:
    machine.install(mvn=MVN)
    old = machine.cache / "activemq-6.0.0"
    old.mkdir()
    Fetched("activemq-6", "activemq", "6.0.0", old).save()
    assert main(["activemq-6"]) == 0
    [found] = fetched("activemq")
    assert found.version != "6.0.0"
    assert not old.exists()


# Failures.


def test_what_a_machine_can_not_fetch_is_left_out_by_name(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([]) == 0, "nobody has asked for one of them"
    written = capsys.readouterr().out
    for name in CATALOGUE:
        assert f"\n  {name:<14} missing: it takes " in written
    assert "as Debian and Ubuntu have it" in written
    assert "apt-get install maven" in written


def test_a_server_that_was_named_and_can_not_be_had_is_a_failure(machine: Machine) -> None:
    assert main(["rabbitmq-4"]) == 1


def test_only_root_can_have_a_system_in_a_folder(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.install(unshare=UNSHARE, debootstrap="", apt_get="")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert SERVER.obstacle() == "only root can run a server of a Debian system in a folder"


def test_a_name_that_is_not_known_is_told_with_the_known_ones(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["hornetq"])
    assert "'hornetq' is none of artemis, activemq-6, rabbitmq-4" in capsys.readouterr().err


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match=r"such cannot be run: No such file"):
        run(["/no/such"], tmp_path / "log", print)


# By Debian.


@pytest.fixture
def debian(machine: Machine) -> Callable[[], Fetched]:
    """A function that downloads a server of Debian, if that is possible."""
    machine.install(unshare=UNSHARE, debootstrap="", dpkg_query=DPKG_QUERY)
    return lambda: SERVER.fetch(machine.cache, print)


def test_packages_are_installed_where_they_can_start_no_service(
    machine: Machine, debian: Callable[[], Fetched]
) -> None:
    found = debian()
    assert (found.server, found.version) == ("rabbitmq", "4.3.6")
    assert (found.folder / "mirror").read_text() == "http://mirror.example/debian\n"
    made, *inside = machine.calls
    assert made == "debootstrap"
    assert all(call.startswith("101 ") for call in inside), "a service could have started"
    assert "--configure -a" in inside[0]
    assert inside[1].endswith("install --no-install-recommends rabbitmq-server erlang")
    assert (machine.fake / "asked").read_text().endswith("rabbitmq-server\n")


def test_a_system_that_is_there_is_not_made_again(
    machine: Machine, debian: Callable[[], Fetched]
) -> None:
    debian()
    debian()
    assert machine.calls.count("debootstrap") == 1


def test_a_system_that_is_not_whole_is_made_again(
    machine: Machine, debian: Callable[[], Fetched]
) -> None:
    broken = machine.mark("broken")
    with pytest.raises(FetchError, match="debootstrap failed"):
        debian()
    assert not (machine.cache / "debian-sid").exists()
    broken.unlink()
    debian()
    assert machine.calls.count("debootstrap") == 2


def test_packages_that_a_mirror_has_no_more_are_looked_for_again(
    machine: Machine, debian: Callable[[], Fetched]
) -> None:
    machine.mark("stale")
    debian()
    words = ["update" if " update" in call else "install" for call in machine.calls[2:5]]
    assert words == ["install", "update", "install"]


@pytest.mark.parametrize(
    ("listing", "mirror"),
    [
        ("", None),
        ("http://m.example/debian/ Debian Debian\n", "http://m.example/debian/"),
        ("http://m.example/debian-security/ Debian Debian-Security\n", None),
        ("https://others.example/linux/debian Docker Docker CE\n", None),
        ("file:/srv/debian/ Debian Debian\nhttps://m/d Debian Debian\n", "https://m/d"),
    ],
)
def test_the_mirror_is_the_one_of_the_machine(listing: str, mirror: str | None) -> None:
    assert mirror_of(listing) == mirror


@pytest.mark.parametrize(
    ("package", "upstream"),
    [
        ("4.3.6-1", "4.3.6"),
        ("1:11.8.9+ds-0+deb13u1", "11.8.9"),
        ("18.6-3", "18.6"),
        ("9.0~rc1-2", "9.0"),
        ("7.1", "7.1"),
    ],
)
def test_the_version_is_that_of_the_program(package: str, upstream: str) -> None:
    assert upstream_version(package) == upstream


def test_a_record_says_what_was_fetched(machine: Machine, debian: Callable[[], Fetched]) -> None:
    debian().save()
    assert json.loads((machine.cache / "rabbitmq-4.json").read_text()) == {
        "server": "rabbitmq",
        "version": "4.3.6",
        "folder": "debian-sid",
    }
