"""Fuzz targets over the stored inputs; that does not need atheris."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from twisted.logger import Logger

import fuzz._targets
from fuzz._driver import Hang, limited
from fuzz._input import Step, pieces, script, steps
from fuzz._logs import no_errors
from fuzz._targets import CORPUS, TARGETS, corpus_files, load

ROOT = Path(fuzz._targets.__file__).parents[1]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a fuzzing command and capture its output."""
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


@pytest.mark.parametrize("name", TARGETS)
def test_every_input_that_is_kept_is_borne(name: str) -> None:
    module = load(name)
    assert module.SEEDS
    for seed in module.SEEDS:
        module.check(seed)
    files = corpus_files(name)
    assert files, f"python -m fuzz --keep --targets {name} makes them"
    for path in files:
        module.check(path.read_bytes())


@pytest.mark.parametrize("name", TARGETS)
def test_the_smallest_inputs_are_borne(name: str) -> None:
    check = load(name).check
    for data in (b"", b"\0", b"\xff", b"\xfe", b"\0\0\xfe\xfea", b"\xff" * 20):
        check(data)


def test_every_module_is_a_target() -> None:
    modules = {path.stem for path in (ROOT / "fuzz").glob("[a-z]*.py")}
    assert modules == {*TARGETS, "network", "difference"}
    assert {path.name for path in CORPUS.iterdir()} == {*TARGETS}


def test_what_is_kept_is_small() -> None:
    files = [path for name in TARGETS for path in corpus_files(name)]
    assert sum(path.stat().st_size for path in files) < 1024 * 1024
    for name, target in TARGETS.items():
        assert all(path.stat().st_size <= target.most_octets for path in corpus_files(name))


# Commands that run the targets.


def test_the_command_lists_the_targets() -> None:
    done = run("fuzz", "--list")
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(TARGETS)
    assert done.returncode == 0


def test_the_command_teaches() -> None:
    assert "pip install atheris" in run("fuzz", "--help").stdout
    done = run("fuzz", "--targets", "nothing")
    assert "there is no target nothing: there are frames, " in done.stderr
    assert done.returncode == 2


def test_single_inputs_are_tried_without_atheris(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(load("frames").SEEDS[0])
    done = run("fuzz.frames", str(path))
    assert done.stdout.startswith(f"{path}: {path.stat().st_size} octets, "), done.stderr
    assert done.returncode == 0


def test_a_hang_is_an_end() -> None:
    def never(data: bytes) -> None:
        while True:
            pass

    with pytest.raises(Hang, match=r"more than 0\.05 seconds for 3 octets"):
        limited(never, b"abc", 0.05)
    # The time limit ends with its call: it does not interrupt the next one.
    limited(lambda data: None, b"", 0.05)


def test_what_is_logged_as_an_error_is_one() -> None:
    log = Logger()
    with no_errors():
        log.info("fine")
    with pytest.raises(AssertionError, match="logged: bad"), no_errors():
        log.error("bad")
    with pytest.raises(AssertionError, match="logged: worse") as caught, no_errors():
        try:
            raise ValueError("why")
        except ValueError:
            log.failure("worse")
    assert isinstance(caught.value.__cause__, ValueError)


# Results of targets for their inputs.


def test_a_script_is_read_as_it_was_written() -> None:
    written = script((7,), b"one", "t", b"two", b"three", "aa", b"four", "e")
    assert written[0] == 7
    assert list(steps(written[1:])) == [
        Step("|", b"one"),
        Step("t", b"two"),
        Step("|", b"three"),
        Step("a", b"afour"),
        Step("e", b""),
    ]


@pytest.mark.parametrize("sizes", [b"", b"\0", b"\1\0\37", b"\377"])
def test_pieces_are_the_whole(sizes: bytes) -> None:
    data = bytes(range(256))
    cut = pieces(data, sizes)
    assert b"".join(cut) == data
    assert all(cut)
    assert pieces(b"", sizes) == []
