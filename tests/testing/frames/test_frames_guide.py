"""The guide to frames in tests: its examples run, and its output is correct."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from docutils import nodes
from docutils.core import publish_doctree

from stompkit.testing import LaunchConfig, launch
from stompkit.testing.transcripts import Transcript

GUIDE = Path(__file__).parents[3] / "docs" / "reference" / "testing-frames.rst"


def blocks(language: str) -> list[str]:
    settings = {"syntax_highlight": "none", "doctitle_xform": False}
    document = publish_doctree(GUIDE.read_text(encoding="utf-8"), settings_overrides=settings)
    found = document.findall(nodes.literal_block)
    return [block.astext() for block in found if language in block["classes"]]


def run(example: str, names: dict[str, Any]) -> None:
    """Run an example, and its test, with the definitions of the earlier ones."""
    exec(compile(example, str(GUIDE), "exec"), names)
    for name in [name for name in names if name.startswith("test_")]:
        names.pop(name)()


def failures_of_all() -> list[str]:
    """Run all examples with the broker and client of the first one."""
    failures = []
    with launch(LaunchConfig(frames=True)) as broker, broker.client() as client:
        client.subscribe("/queue/orders", ack="client-individual")
        client.send("/queue/orders", "three apples")
        client.ack(client.receive())
        names: dict[str, Any] = {"broker": broker, "client": client}
        for example in blocks("python"):
            try:
                run(example, names)
            except AssertionError as failure:
                failures.append(str(failure))
    return failures


def is_like(text: str, shown: str) -> bool:
    """Return True if a text equals the guide's, except for times and parts shown as ``...``."""
    pattern = re.escape(shown).replace(r"\.\.\.", "(?s:.+)")
    pattern = re.sub(r"\d+\\\.\d{3}\\ s", r"\\d+\\.\\d{3} s", pattern)
    return re.fullmatch(pattern, text) is not None


def test_the_examples_do_what_the_guide_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STOMPKIT_UPDATE_GOLDEN", "1")
    failures_of_all()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("orders-golden.stomp", "orders.stomp", "send-golden.stomp")
    ]
    monkeypatch.delenv("STOMPKIT_UPDATE_GOLDEN")
    failures = failures_of_all()
    shown, _ = blocks("none")
    assert len(failures) == 1, failures
    assert is_like(failures[0], shown), failures[0]
    assert capsys.readouterr().out.count("STOMP transcript 1") == 4


def test_the_transcript_that_is_shown_is_one() -> None:
    _, shown = blocks("none")
    assert str(Transcript.parse(shown)) == shown + "\n"
