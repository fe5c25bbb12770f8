"""Faults in a file: the syntax, the effects, and the error messages."""

from __future__ import annotations

import inspect
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from docutils import nodes
from docutils.core import publish_doctree

from stompkit.frames import Frame
from stompkit.testing import LaunchConfig, launch
from stompkit.testing.proxy import FaultScript, FaultScriptError, Proxy
from stompkit.testing.proxy.methods import FaultMethods
from tests.testing.proxy.test_proxy import Bench, Wire, cut_off, rest, take, turned_away

DOCUMENTATION = Path(__file__).parents[3] / "docs" / "howto" / "faults.rst"


@pytest.fixture
def bench() -> Iterator[Bench]:
    """Servers, proxies and connections for both sides of a proxy."""
    with ExitStack() as stack:
        yield Bench(stack)


def scripted(bench: Bench, text: str) -> Proxy:
    """Return a proxy with the faults of a script."""
    script = FaultScript.parse(text)
    proxy = bench.proxy(seed=script.seed or 0)
    script.apply(proxy)
    return proxy


def passed(wire: Wire, octets: bytes) -> bytes:
    """Return the bytes that the client receives when the broker sends these and closes."""
    wire.broker.sendall(octets)
    wire.broker.shutdown(socket.SHUT_WR)
    return rest(wire.client)


def problems(text: str) -> list[str]:
    with pytest.raises(FaultScriptError) as told:
        FaultScript.parse(text, "faults.toml")
    assert str(told.value) == "\n".join(told.value.problems)
    return told.value.problems


# Effects of a script.


def test_faults_of_a_script_happen_on_the_wire(bench: Bench) -> None:
    proxy = scripted(
        bench,
        """
        seed = 7

        [[fault]]
        do = "drop"
        frame = "MESSAGE"
        headers = { destination = "/queue/x", receipt = { absent = true } }
        nth = 2

        [[fault]]
        do = "duplicate"
        body = { pattern = "^twice" }
        direction = "sent"
        copies = 2

        [[fault]]
        do = "truncate"
        frame = "ERROR"
        octets = 3
        """,
    )
    frame = b"MESSAGE\ndestination:/queue/x\n\n%b\0"
    said = [frame % b"one", frame % b"two", frame % b"twice as much"]
    octets = passed(bench.wire(proxy), b"".join(said) + b"ERROR\n\n\0")
    assert octets == said[0] + said[2] * 3 + b"ERR"


def test_a_script_can_inject_octets_and_frames(bench: Bench) -> None:
    proxy = scripted(
        bench,
        r"""
        [[fault]]
        do = "inject"
        frame = "SEND"
        what = "ERROR\nmessage:no\n\n\u0000"

        [[fault]]
        do = "inject"
        frame = "SEND"
        what = { command = "RECEIPT", headers = { receipt-id = "1" } }
        """,
    )
    wire = bench.wire(proxy)
    wire.client.sendall(b"SEND\n\n\0")
    expected = b"ERROR\nmessage:no\n\n\0RECEIPT\nreceipt-id:1\n\n\0"
    assert take(wire.client, len(expected)) == expected


def test_a_script_can_be_about_connections_that_come(bench: Bench) -> None:
    proxy = scripted(bench, '[[fault]]\ndo = "reset"\nlater = true\nnth = 2')
    first = bench.wire(proxy)
    turned_away(bench, proxy, cut_off)
    first.client.sendall(b"x")
    assert take(first.broker, 1) == b"x"


def test_a_script_gives_its_faults_in_their_order(bench: Bench) -> None:
    script = FaultScript.parse('fault = [{do = "hold"}, {do = "refuse", times = 2}]')
    assert script.seed is None
    faults = script.apply(bench.proxy())
    assert [str(fault) for fault in faults] == [
        "hold: all bytes",
        "refuse: connections, at most 2 times",
    ]


def test_a_script_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "faults.toml"
    path.write_text('seed = 3\n[[fault]]\ndo = "swallow_heart_beats"\n', encoding="utf-8")
    script = FaultScript.load(path)
    assert script == FaultScript((("swallow_heart_beats", {}),), 3)
    assert FaultScript.load(str(path)) == script
    path.write_bytes(b"seed = 3\n# \xff\n")
    with pytest.raises(FaultScriptError, match=re.escape(f"{path}, line 2: not UTF-8")):
        FaultScript.load(path)


def test_an_empty_script_has_no_faults() -> None:
    assert FaultScript.parse("") == FaultScript()


# Invalid scripts.


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("seed = ", ": not TOML: Invalid value (at end of document)"),
        ("seed = 1\nx = ]", "line 2: not TOML: Invalid value in column 5"),
        ("seed = 1.5", "line 1: seed: is 1.5, not a whole number"),
        ("\nfaults = []", "line 2: faults: there is only seed and [[fault]]"),
        ("fault = 3", "line 1: fault: is to be a table, written [[fault]]"),
        ("[fault]\ndo = 'drop'", "line 1: fault: is to be a table, written [[fault]]"),
        ("[[fault]]", "line 1: [[fault]] #1: needs do, one of drop, duplicate, reorder,"),
        ("[[fault]]\ndo = 'dorp'", "line 2: [[fault]] #1 do: is 'dorp'; did you mean drop?"),
        ("[[fault]]\ndo = 'heal'", "line 2: [[fault]] #1 do: is 'heal'; "),
        ("[[fault]]\ndo = '_put'", "line 2: [[fault]] #1 do: is '_put'; "),
        ("[[fault]]\ndo = ['drop']", "line 2: [[fault]] #1 do: is ['drop']; did you mean drop?"),
        (
            "[[fault]]\ndo = 'drop'\nfrme = 'SEND'",
            "line 3: [[fault]] #1 frme: drop has no such key; did you mean frame?",
        ),
        (
            "[[fault]]\ndo = 'refuse'\nframe = 'SEND'",
            "line 3: [[fault]] #1 frame: refuse has no such key; there are times",
        ),
        ("[[fault]]\ndo = 'delay'", "line 1: [[fault]] #1: delay needs seconds"),
        (
            "[[fault]]\ndo = 'drop'\nframe = 'MESAGE'",
            "line 1: [[fault]] #1: drop: 'MESAGE' is not a command of STOMP",
        ),
        ("[[fault]]\ndo = 'drop'\nframe = 3", "line 3: [[fault]] #1 frame: is 3, not text"),
        (
            "[[fault]]\ndo = 'drop'\n\nnth = 0",
            "line 4: [[fault]] #1 nth: drop: nth is 0, not 1 or more",
        ),
        (
            "[[fault]]\ndo = 'close'\nlater = 1",
            "line 3: [[fault]] #1 later: is 1, not true or false",
        ),
        (
            "[[fault]]\ndo = 'drop'\nheaders = 'x'",
            "line 3: [[fault]] #1 headers: is 'x', not a table of headers",
        ),
        (
            "[[fault]]\ndo = 'drop'\nheaders = { x = 3 }",
            "line 3: [[fault]] #1 headers: x: is 3, not a text, { absent = true } or { pattern",
        ),
        (
            "[[fault]]\ndo = 'drop'\nbody = { absent = true }",
            "line 3: [[fault]] #1 body: is {'absent': True}, not a text or { pattern",
        ),
        (
            "[[fault]]\ndo = 'drop'\nbody = { pattern = '(' }",
            "line 3: [[fault]] #1 body: '(' is no regular expression: missing )",
        ),
        (
            "[[fault]]\ndo = 'inject'\nframe = 'SEND'\nwhat = { command = 3 }",
            "line 4: [[fault]] #1 what: is {'command': 3}, neither a text nor a table",
        ),
        (
            "[[fault]]\ndo = 'inject'\nframe = 'SEND'\nwhat = { command = 'SNED' }",
            "line 1: [[fault]] #1: inject: unknown command 'SNED'",
        ),
        (
            "[[fault]]\ndo = 'stop_reading'",
            "line 1: [[fault]] #1: stop_reading needs later = true: nobody",
        ),
        ("fault = [{do = 'x'}]", "[[fault]] #1 do: is 'x'; there are drop"),
    ],
)
def test_a_mistake_is_told_with_its_place(text: str, told: str) -> None:
    [problem] = problems(text)
    assert problem.startswith("faults.toml")
    assert told in problem


def test_all_mistakes_are_told_in_the_order_of_the_file() -> None:
    text = '''
# [[fault]]
[[fault]]
do = "drop"
body = """
[[fault]]
do = "x"
"""
nth = 0
[[ fault ]]  # the second
do = "drop"
[[fault]]
'do' = "delay"
seconds = "1"
nht = 3
'''
    assert problems(text + "\n[[fault]]\ndo = 'reset'") == [
        "faults.toml, line 9: [[fault]] #1 nth: drop: nth is 0, not 1 or more",
        "faults.toml, line 15: [[fault]] #3 nht: delay has no such key; did you mean nth?",
        "faults.toml, line 17: [[fault]] #4: reset needs a frame, or later = true:"
        " nobody has connected yet",
    ]


# The documentation.


def test_the_test_of_the_documentation_passes() -> None:
    [code] = [block.astext() for block in literal_blocks() if "python" in block["classes"]]
    names: dict[str, Any] = {}
    exec(code, names)
    [test] = [value for name, value in names.items() if name.startswith("test_")]
    with launch(LaunchConfig()) as broker:
        test(broker)


def literal_blocks() -> Iterator[nodes.literal_block]:
    document = publish_doctree(
        DOCUMENTATION.read_text(encoding="utf-8"),
        settings_overrides={"report_level": 5, "syntax_highlight": "none"},
    )
    assert isinstance(document, nodes.document)
    return document.findall(nodes.literal_block)


def test_the_script_of_the_documentation_has_no_mistakes(bench: Bench) -> None:
    [text] = [block.astext() for block in literal_blocks() if "[[fault]]" in block.astext()]
    script = FaultScript.parse(text)
    assert len(script.apply(bench.proxy())) == len(script.faults) == text.count("[[fault]]")


def test_every_fault_has_an_example_in_the_documentation_that_can_be_used(bench: Bench) -> None:
    calls = re.findall(r"``(proxy\.(\w+)\([^`]*\))``", DOCUMENTATION.read_text(encoding="utf-8"))
    for call, _ in calls:
        exec(call, {"proxy": bench.proxy(), "Frame": Frame})
    methods = {name for name, value in vars(FaultMethods).items() if inspect.isfunction(value)}
    assert {name for name in methods if not name.startswith("_")} <= {name for _, name in calls}
