"""Mistakes on command lines and in files: each gives one line with cause and cure.

``mistakes.txt`` is a transcript: lines that begin with ``$`` are commands, the others are all that
they print. After a deliberate change, STOMPKIT_UPDATE_GOLDEN=1 writes it again; read what changed.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from stompkit._commands.tools.outline import parsers
from stompkit._common.arguments import is_path
from tests.ports import free_ports

TRANSCRIPT: Final = Path(__file__).with_name("mistakes.txt")
#: An endpoint that is not open to other machines, which would be a warning.
LOCAL: Final = '[[listen]]\nendpoint = "tcp:0:interface=127.0.0.1"\n'
#: Files in the folder of each command, by their names.
FILES: Final = {
    "misspelt.toml": '[store]\npth = "/tmp/x"\n',
    "port.toml": '[[listen]]\nendpoint = "tcp:99999"\n',
    "coilmq.ini": "[coilmq]\nport = 61613\nhost = localhost\n",
    "activemq.xml": '<?xml version="1.0"?>\n<beans/>\n',
    "rabbitmq.conf": "# STOMP\nstomp.listeners.tcp.1 = 61613\n",
    "users.toml": '[auth]\ncheckers = ["stompkit:nosuch/users"]\n',
    "certificate.toml": '[[listen]]\nendpoint = "stomps:61614:certificate=nosuch.pem"\n',
    "plain-tls.toml": '[[listen]]\nendpoint = "stomps:61614"\n',
    "syntax.toml": "[store\n",
    "rights.toml": '[[rights]]\ndestination = "/queue/x"\nallow = ["wrte"]\n',
    "type.toml": '[broker]\nprefetch = "many"\n',
    "store.toml": f'[store]\npath = "text.txt"\n{LOCAL}',
    "log.toml": f'[log]\nfile = "nosuch/log"\n{LOCAL}',
    "address.toml": (
        '[[listen]]\nendpoint = "tcp:0:interface=192.0.2.1"\n[auth]\nanonymous = true\n'
    ),
    "bridge.toml": '[[route]]\nfrm = "x"\n',
    "replicate.toml": 'frm = "x"\n',
    "pipeline.toml": 'name = "a"\n[source]\nspol = "x"\n',
    "faults.toml": "[[fault]]\nwhat = 1\n",
    "text.txt": "hello\n",
    "bytes.toml": '[store]\npath = "gr\udcf6\udcdfe"\n',
    "table.toml": '[listen]\nendpoint = "tcp:0"\n',
    "truth.toml": "[store]\npath = true\n",
    "negative.toml": "[broker]\nmax_connections = -1\n",
    "fraction.toml": "[broker]\nprefetch = 1.5\n",
    "twice.toml": '[store]\npath = "a"\npath = "b"\n',
    "destination.toml": '[[destination]]\nname = "queue/a"\n',
    "variable.toml": '[store]\nurl = "env:NOT_SET"\n',
    "secret.toml": '[store]\nurl = "file:nosuch"\n',
    "database.toml": f'[store]\nurl = "nosuch://x"\n{LOCAL}',
    "token.toml": '[admin]\nendpoints = ["tcp:0:interface=127.0.0.1"]\ntoken_file = "empty"\n',
    "empty": "",
    "hosts.toml": '[broker]\nhosts = "a"\n',
    "dialect.toml": '[broker]\ndialect = "rabitmq"\n',
    "lease.toml": '[high_availability]\nlease = "database"\n',
    "name.toml": "name = 5\n[source]\nspool = 'x'\n",
    "from.toml": "from = 5\n",
    "broker.toml": "broker = 5\n",
    "unhashed.toml": '[auth]\ncheckers = ["stompkit:text.txt"]\n',
}


def commands() -> list[tuple[str, str]]:
    """Return the commands of the transcript, with what each prints."""
    found = re.split(r"^\$ ", TRANSCRIPT.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return [(command, text) for command, _, text in (each.partition("\n") for each in found)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files."""
    made = tmp_path_factory.mktemp("mistakes")
    for name, text in FILES.items():
        (made / name).write_text(text, encoding="utf-8", errors="surrogateescape")
    return made


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """A port that nothing listens on."""
    with free_ports() as (found,):
        yield found


def printed(command: str, folder: Path, port: int) -> str:
    """Run a command; return all that it prints, with names in place of the folder and the port."""
    words = shlex.split(command.replace("PORT", str(port)))
    assert words[0] in ("stompkit", "python")
    module = ["-m", "stompkit"] if words[0] == "stompkit" else []
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    kept = {name: value for name, value in os.environ.items() if not name.startswith("STOMPKIT")}
    done = subprocess.run(
        [sys.executable, *module, *words[1:]],
        cwd=folder,
        env={**kept, "PYTHONPATH": path, "NO_COLOR": "1", "COLUMNS": "80"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode not in (0, -9), done.stdout
    return done.stdout.replace(str(folder), "FOLDER").replace(str(port), "PORT")


@pytest.mark.parametrize(("command", "text"), commands(), ids=[each for each, _ in commands()])
def test_a_mistake_is_answered_with_its_cause(
    command: str, text: str, folder: Path, port: int
) -> None:
    found = printed(command, folder, port)
    if os.environ.get("STOMPKIT_UPDATE_GOLDEN"):
        whole = TRANSCRIPT.read_text(encoding="utf-8")
        TRANSCRIPT.write_text(whole.replace(f"$ {command}\n{text}", f"$ {command}\n{found}"))
    else:
        assert found == text


def path_arguments() -> Iterator[tuple[str, argparse.ArgumentParser, argparse.Action]]:
    """Yield the arguments of all commands that are paths, with their parsers."""

    def found(
        parser: argparse.ArgumentParser,
    ) -> Iterator[tuple[str, argparse.ArgumentParser, argparse.Action]]:
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for each in action.choices.values():
                    yield from found(each)
            elif is_path(action):
                name = (action.option_strings or [str(action.metavar)])[-1]
                yield f"{parser.prog} {name}", parser, action

    for _, parser in parsers():
        if parser is not None:
            yield from found(parser)


PATH_ARGUMENTS = list(path_arguments())


def test_the_commands_have_arguments_that_are_paths() -> None:
    names = [name for name, _, _ in PATH_ARGUMENTS]
    assert {"stompkit spool verify SPOOL", "stompkit send --file", "stompkit passwd FILE"} <= {
        *names
    }
    assert len(names) > 40


@pytest.mark.parametrize(
    ("parser", "action"),
    [each[1:] for each in PATH_ARGUMENTS],
    ids=[name for name, _, _ in PATH_ARGUMENTS],
)
def test_an_empty_path_is_refused_and_not_taken_as_the_current_directory(
    parser: argparse.ArgumentParser, action: argparse.Action, capsys: pytest.CaptureFixture[str]
) -> None:
    positional = [each for each in parser._actions if not each.option_strings]
    arguments = [action.option_strings[-1], ""] if action.option_strings else [""] * len(positional)
    with pytest.raises(SystemExit, match="2"):
        parser.parse_args(arguments)
    assert "the path is empty" in capsys.readouterr().err


def test_mistakes_are_answered_in_one_line_without_tracebacks() -> None:
    answers = commands()
    assert len(answers) >= 100
    long = [command for command, text in answers if len(text.splitlines()) > 2]
    assert long == []
    assert [command for command, text in answers if "Traceback" in text or "usage:" in text] == []
