"""Cases that begin at one node and end at another: those of a module share one fail-over.

The end of a node and the takeover take seconds, too long to repeat for each case.
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

#: The steps at one node and, after a yield that returns the duration of the fail-over in seconds,
#: at another one. It ends without a yield if no fail-over is needed.
Halves = Generator[None, float, None]
Story = Callable[[Target, Cluster], Halves]

_ATTRIBUTE: Final = "stompkit_story"


@dataclass
class _Telling:
    """A scenario in execution or completed."""

    #: The target of this case, with its record.
    target: Target
    halves: Halves
    left_at: float = 0.0
    is_over: bool = False
    #: The error raised by the scenario or between its halves.
    error: Exception | None = None


_TOLD = pytest.StashKey[dict[Story, _Telling]]()


def across(story: Story) -> Callable[..., None]:
    """Make a test function of a scenario.

    The first one that runs in a module executes all selected scenarios of the module: their steps
    before the fail-over, and those after it. The others then only report their results and records.
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
    """Return the other selected scenarios of the module, each with a separate target."""
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
    """Run the scenarios up to the fail-over, end the node, and run the rest of them.

    The others run even if the first one fails before: they would not run otherwise.
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
    """Run one half; an error is kept for the case that it belongs to."""
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
    """Use the record and the error of a scenario as those of the case of ``target``."""
    own = telling.target
    target.recorder, target.peers = own.recorder, own.peers
    target.notes, target.lapses, target.chosen = own.notes, own.lapses, own.chosen
    if telling.error is not None:
        raise telling.error
