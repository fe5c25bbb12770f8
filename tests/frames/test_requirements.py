"""The tests of the codec name the statements that they cover, and omit none about frames."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import stompkit

CATALOGUE = Path(stompkit.__file__).parent / "conformance" / "requirements.json"

#: Sections of the catalogue that a codec and a session table can fulfil or violate.
SECTIONS = {
    *("frame", "encoding", "body", "content-length", "repeated", "limits", "utf8", "bnf"),
    *("negotiation", "heartbeat", "headers", "commands", "client-frames", "server-frames"),
}
_CLOSES = "closing is for the owner of the session, which has the transport"
_USERS = "user headers are carried like any other; what they belong to is for the broker"
#: Statements of these sections that are not about the codec, each with the reason.
ELSEWHERE = {
    "1.1/frame/reliable-stream": "what STOMP needs below, not what it does",
    "1.2/frame/reliable-stream": "what STOMP needs below, not what it does",
    "1.1/repeated/server-may-update": "the broker may, the codec does not",
    "1.2/repeated/server-may-update": "the broker may, the codec does not",
    "1.1/utf8/recommended-text": "the body's text is the application's",
    "1.2/utf8/recommended-text": "the body's text is the application's",
    "1.2/negotiation/no-common-close": _CLOSES,
    "1.2/headers/user-headers-part-of-message": _USERS,
    "1.2/headers/server-extensions-may": _USERS,
    "1.1/client-frames/unknown-may-be-sent": "the codec sends none",
    "1.2/client-frames/unknown-may-be-sent": "the codec sends none",
}


def catalogue() -> set[str]:
    return {entry["id"] for entry in json.loads(CATALOGUE.read_text(encoding="utf-8"))}


def named() -> Iterator[tuple[str, str]]:
    """Yield pairs of file and id: the arguments of every ``requirement(...)``."""
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and ast.unparse(node.func).split(".")[-1] == "requirement"
            ):
                for argument in node.args:
                    assert isinstance(argument, ast.Constant), f"{path.name}: {ast.unparse(node)}"
                    yield path.name, str(argument.value)


def test_every_statement_that_a_test_names_is_in_the_catalogue() -> None:
    known = catalogue()
    assert [(name, wanted) for name, wanted in named() if wanted not in known] == []


def test_every_statement_about_frames_is_named_by_a_test() -> None:
    about_frames = {name for name in catalogue() if name.split("/")[1] in SECTIONS}
    assert sorted(about_frames - {wanted for _, wanted in named()} - ELSEWHERE.keys()) == []


def test_statements_left_to_others_exist_and_are_not_tested_here() -> None:
    assert ELSEWHERE.keys() <= catalogue()
    assert ELSEWHERE.keys() & {wanted for _, wanted in named()} == set()
