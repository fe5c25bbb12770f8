"""Cases that begin at one node and end at another: those of a module share one fail-over.

To end a node and to wait for another takes seconds, which a run has not got for each of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Final

import pytest

from stompkit.conformance.cluster import Cluster
from stompkit.conformance.peer import Recorder
from stompkit.conformance.target import Target

__all__ = ["Halves", "Story", "across"]

#: What is done at one node and, after a yield that gives the seconds in between, at another. It
#: ends without a yield where there is no use in going to another.
Halves = Generator[None, float, None]
Story = Callable[[Target, Cluster], Halves]

_ATTRIBUTE: Final = "stompkit_story"


@dataclass
class _Telling:
    """A story that is being told, or has been."""

    #: The target as this case sees it, with the record of it.
    target: Target
    halves: Halves
    left_at: float = 0.0
    is_over: bool = False
    #: What has gone wrong, in the story or between its halves.
    error: Exception | None = None


_TOLD = pytest.StashKey[dict[Story, _Telling]]()


def across(story: Story) -> Callable[..., None]:
    """Make a test function of a story.

    The first that is run of a module's has all told that are selected: what they do before the
    node ends, and what they do then. When the turn of the others comes they only say how they ended
    and hand over their record.
    """

    def test(request: pytest.FixtureRequest, target: Target, cluster: Cluster) -> None:
        told = request.config.stash.setdefault(_TOLD, {})
        if story not in told:
            told[story] = first = _Telling(target, story(target, cluster))
            _tell_all(first, _others(story, request, target, cluster), cluster)
        _report(told.pop(story), target)

    test.__doc__ = story.__doc__
    test.__module__ = story.__module__
    setattr(test, _ATTRIBUTE, story)
    return test


def _others(
    story: Story, request: pytest.FixtureRequest, target: Target, cluster: Cluster
) -> list[_Telling]:
    """The other selected stories of the module, each with a target of its own."""
    capabilities = request.getfixturevalue("capabilities")
    told = request.config.stash[_TOLD]
    others = []
    for item in request.session.items:
        other: Story | None = getattr(getattr(item, "function", None), _ATTRIBUTE, None)
        if other is None or other in told or other.__module__ != story.__module__:
            continue
        recorder = Recorder(target.address.secret)
        own = Target(target.address, capabilities, target.version, recorder)
        told[other] = _Telling(own, other(own, cluster))
        others.append(told[other])
    return others


def _tell_all(first: _Telling, others: list[_Telling], cluster: Cluster) -> None:
    """Tell stories up to the end of a node, end it, and tell the rest of them.

    The others are told even where the first one does not get that far: nobody else would.
    """
    group = [first, *others]
    for each in group:
        cluster.take_along(each.target)
        _tell(each, lambda halves: next(halves))
    if not _going_on(group):
        return
    try:
        took_s = cluster.fail_over()
    except Exception as error:
        for each in _going_on(group):
            each.error = error
    for each in _going_on(group):
        _tell(each, lambda halves: halves.send(took_s))
        cluster.let_go(each.target)
        if not each.is_over and each.error is None:
            each.error = RuntimeError("a story has more than two halves")


def _going_on(group: list[_Telling]) -> list[_Telling]:
    return [each for each in group if not each.is_over and each.error is None]


def _tell(telling: _Telling, tell: Callable[[Halves], None]) -> None:
    """Tell one half; what goes wrong is kept for the case's own turn."""
    if telling.left_at:
        telling.target.extend_deadline(time.monotonic() - telling.left_at)
    try:
        tell(telling.halves)
    except StopIteration:
        telling.is_over = True
    except Exception as error:
        telling.error = error
    telling.left_at = time.monotonic()


def _report(telling: _Telling, target: Target) -> None:
    """Have what was recorded and raised count as that of the case that ``target`` is for."""
    own = telling.target
    target.recorder, target.peers = own.recorder, own.peers
    target.notes, target.lapses, target.chosen = own.notes, own.lapses, own.chosen
    if telling.error is not None:
        raise telling.error
