"""``stompkit completion``, in the shells themselves, and the page of all commands."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import stompkit

LONG_S = 60.0
ROOT = Path(stompkit.__file__).parents[1]
DOCS = ROOT / "docs"
COMMAND = [sys.executable, "-m", "stompkit"]
CASES = [
    (["re"], {"receive", "resume", "retry", "replica", "replicate", "recover"}),
    (["store", ""], {"backup", "check", "compact", "export", "import"}),
    (["store", "co"], {"compact"}),
    (["receive", "/queue/a", "--ack", ""], {"auto", "client", "client-individual"}),
    (["receive", "/queue/a", "--bro"], {"--browse"}),
    (["completion", "z"], {"zsh"}),
]


def run(command: list[str], text: str = "") -> str:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": path},
        input=text,
        capture_output=True,
        text=True,
        timeout=LONG_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def script() -> Callable[[str], str]:
    """Return the script for a shell."""
    return {shell: run([*COMMAND, "completion", shell]) for shell in ("bash", "zsh", "fish")}.get  # type: ignore[return-value]


def shell(name: str) -> str:
    """A shell; the test is skipped if it is not installed."""
    found = shutil.which(name)
    if found is None and os.environ.get("STOMPKIT_MQ_MISSING") == "fail":
        pytest.fail(f"{name} is not installed: apt-get install {name}")
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


@pytest.mark.parametrize(("words", "offered"), CASES)
def test_bash_offers(script: Callable[[str], str], words: list[str], offered: set[str]) -> None:
    quoted = " ".join(f"'{word}'" for word in ["stompkit", *words])
    asked = f"COMP_WORDS=({quoted}); COMP_CWORD={len(words)}; _stompkit"
    text = f"{script('bash')}\n{asked}; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    found = set(run([shell("bash"), "--norc"], text).split())
    assert offered == {each for each in found if not each.startswith("-")} or found == offered


@pytest.mark.parametrize(("words", "offered"), CASES)
def test_fish_offers(script: Callable[[str], str], words: list[str], offered: set[str]) -> None:
    line = " ".join(["stompkit", *words])
    text = f"{script('fish')}\ncomplete -C '{line}'"
    found = {each.partition("\t")[0] for each in run([shell("fish"), "-N"], text).splitlines()}
    assert found == offered


def test_zsh_takes_the_script(script: Callable[[str], str]) -> None:
    text = f"autoload -U compinit; compinit -D\n{script('zsh')}\nprint $_comps[stompkit]"
    assert run([shell("zsh"), "-f"], text) == "_stompkit\n"
    assert "'--browse[show messages without removing them]'" in script("zsh").replace("*--", "--")
    for argument in ("'*:OF:(history topology)'", "'*:FILE:_files'"):
        assert argument in script("zsh")


def test_files_are_offered_where_there_is_one(script: Callable[[str], str], tmp_path: Path) -> None:
    (tmp_path / "some-file").touch()
    for words in (["store", "check"], ["send", "/queue/a", "--file"]):
        quoted = " ".join(["stompkit", *words, f"'{tmp_path}/so'"])
        asked = f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) + 1}; _stompkit"
        found = run([shell("bash"), "--norc"], f"{script('bash')}\n{asked}; echo $COMPREPLY")
        assert found == f"{tmp_path}/some-file\n"


def test_the_page_of_commands_is_what_the_parsers_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main: Callable[[list[str]], int] = runpy.run_path(str(DOCS / "make_commands.py"))["main"]
    assert main(["--check"]) == 0, "run docs/make_commands.py"
    assert main(["--check", "--into", str(tmp_path)]) == 1
    assert "make_commands.py" in capsys.readouterr().err
    assert main(["--into", str(tmp_path)]) == 0
    assert (tmp_path / "commands.rst").read_text() == (
        DOCS / "reference" / "commands.rst"
    ).read_text()
