"""A channel of replicas, bridged by one option of the command."""

from __future__ import annotations

import pytest

from stompkit._commands.bridge.command import main

ENDS = ["--from", "stomp://one", "--to", "stomp://two"]


def test_a_channel_is_its_topic_and_those_of_its_nodes_both_ways(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([*ENDS, "--channel", "shop", "--check"]) == 0
    there, back = capsys.readouterr().out.splitlines()
    for line in (there, back):
        assert "/topic/shop, /topic/shop.> of " in line
    assert " to two" in there
    assert " to one" in back


@pytest.mark.parametrize("more", [["--queue", "q"], ["--destination", "/topic/x"]])
def test_a_channel_goes_nowhere_else(more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ENDS, "--channel", "shop", *more]) == 2
    assert "--channel goes both ways" in capsys.readouterr().err
