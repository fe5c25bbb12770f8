"""The archive of classes with which a JVM for Spark starts faster."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

PROGRAM = """
import sys
from pathlib import Path
from pyspark import SparkContext
from stompkit.spark import spark_session
from stompkit.spark.class_archive import writes_archive

spark = spark_session("a", master="local[1]", profile="test", archives_classes="write" in sys.argv)
assert spark.range(3).count() == 3
maps = Path(f"/proc/{SparkContext._gateway.proc.pid}/maps").read_text()
print("uses" if "/classes-" in maps else "writes" if writes_archive() else "neither")
spark.stop()
"""
#: Options of two programs at the same time, without a JVM.
OPTIONS = """
import sys
from pathlib import Path
from stompkit.spark.class_archive import archive_options

print(archive_options(Path(sys.argv[1]), Path(sys.argv[2]), writes=True), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def environment(tmp_path: Path, java_home: Path) -> dict[str, str]:
    """The environment of a user with an empty cache."""
    if not (java_home / "lib" / "server" / "classes.jsa").is_file():
        pytest.skip("this Java has no archive of its own classes")
    own = {k: v for k, v in os.environ.items() if not k.startswith("SPARK_")}
    return own | {"XDG_CACHE_HOME": str(tmp_path / "a cache")}


def run(environment: Mapping[str, str], *arguments: str) -> str:
    command = [sys.executable, "-c", PROGRAM, *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def archives(folder: Path) -> list[Path]:
    return list(folder.rglob("classes-*"))


@pytest.mark.matrix
@pytest.mark.skipif(sys.platform != "linux", reason="maps of a process are in /proc")
def test_the_second_session_uses_the_classes_of_the_first(
    environment: dict[str, str], tmp_path: Path
) -> None:
    assert run(environment) == "neither"
    assert not archives(tmp_path)
    assert run(environment, "write") == "writes"
    (archive,) = archives(tmp_path)
    assert run(environment) == "uses"
    content = archive.read_bytes()
    archive.unlink()
    # After a crash of the machine, or a full disk.
    archive.write_bytes(content[:-4096])
    assert run(environment, "write") == "writes"
    assert archives(tmp_path) == [archive]
    archive.unlink()
    middle = len(content) // 2
    archive.write_bytes(content[:middle] + bytes(4096) + content[middle + 4096 :])
    assert run(environment) == "neither"


@pytest.mark.matrix
@pytest.mark.skipif(sys.platform != "linux", reason="maps of a process are in /proc")
def test_javas_that_are_used_in_turn_keep_their_archives(
    environment: dict[str, str], java_home: Path, tmp_path: Path
) -> None:
    other = tmp_path / "java"
    other.mkdir()
    for each in java_home.iterdir():
        (other / each.name).symlink_to(each)
    assert run(environment, "write") == "writes"
    (first,) = archives(tmp_path)
    unused = [first.with_name(f"classes-{number:016x}-0.jsa") for number in range(3)]
    for used, each in enumerate(unused):
        each.touch()
        os.utime(each, (used, used))
    assert run(environment | {"JAVA_HOME": str(other)}, "write") == "writes"
    # As many as are used in turn, and no more.
    assert len(archives(tmp_path)) == 3
    assert {first, unused[-1]} < set(archives(tmp_path))
    assert run(environment) == "uses"


@pytest.fixture
def home(tmp_path: Path, environment: dict[str, str]) -> Path:
    home = tmp_path / "home"
    (home / "jars").mkdir(parents=True)
    (home / "jars" / "a.jar").write_bytes(b"1")
    return home


def options(home: Path, java_home: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", OPTIONS, str(home), str(java_home)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def option(home: Path, java_home: Path) -> str:
    with options(home, java_home) as process:
        output, _ = process.communicate()
    return output.partition(" ")[0].strip()


def test_one_process_at_a_time_writes_an_archive(home: Path, java_home: Path) -> None:
    with options(home, java_home) as first:
        assert first.stdout is not None
        assert first.stdout.readline().startswith("-XX:ArchiveClassesAtExit")
        assert option(home, java_home) == ""
        first.communicate()
    assert option(home, java_home).startswith("-XX:ArchiveClassesAtExit")


def test_an_archive_is_for_one_java_and_one_set_of_jars(
    home: Path, java_home: Path, tmp_path: Path
) -> None:
    names = [option(home, java_home)]
    (home / "jars" / "b.jar").write_bytes(b"2")
    names.append(option(home, java_home))
    os.utime(home / "jars" / "b.jar", (1, 1))
    names.append(option(home, java_home))
    other = tmp_path / "java"
    (other / "lib" / "server").mkdir(parents=True)
    shutil.copy(java_home / "lib" / "server" / "classes.jsa", other / "lib" / "server")
    names.append(option(home, other))
    (other / "release").write_text("22")
    names.append(option(home, other))
    assert len(set(names)) == len(names)
    assert all(name.startswith("-XX:ArchiveClassesAtExit") for name in names)


def test_what_a_killed_process_has_left_is_removed(home: Path, java_home: Path) -> None:
    left = home / "classes-0123456789abcdef.new"
    left.touch()
    assert option(home, java_home).startswith("-XX:ArchiveClassesAtExit")
    assert not left.exists()


def test_a_java_without_an_archive_of_its_own_gets_none(home: Path, tmp_path: Path) -> None:
    assert option(home, tmp_path) == ""
