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
from stompkit.conformance.verdict import CommandError

__all__ = ["Halves", "Story", "across"]

#: The steps at one node and, after a yield that returns the duration of the fail-over in seconds,
#: at another one. It ends without a yield if no fail-over is needed.
Halves = Generator[None, float, None]
Story = Callable[[Target, Cluster], Halves]

_ATTRIBUTE: Final = "stompkit_story"


@dataclass
class _StoryRun:
    """A scenario in execution or completed."""

    #: The target of this case, with its record.
    target: Target
    halves: Halves
    left_at: float = 0.0
    is_over: bool = False
    #: The error raised by the scenario or between its halves.
    error: Exception | None = None


_STORIES = pytest.StashKey[dict[Story, _StoryRun]]()


def across(story: Story) -> Callable[..., None]:
    """Make a test function of a scenario.

    The first one that runs in a module executes all selected scenarios of the module: their steps
    before the fail-over, and those after it. The others then only report their results and records.
    """

    def test(request: pytest.FixtureRequest, target: Target, cluster: Cluster) -> None:
        stories = request.config.stash.setdefault(_STORIES, {})
        if story not in stories:
            stories[story] = first = _StoryRun(target, story(target, cluster))
            _run_all(first, _others(story, request, target, cluster), cluster)
        _report(stories.pop(story), target)

    test.__doc__ = story.__doc__
    test.__module__ = story.__module__
    setattr(test, _ATTRIBUTE, story)
    return test


def _others(
    story: Story, request: pytest.FixtureRequest, target: Target, cluster: Cluster
) -> list[_StoryRun]:
    """Return the other selected scenarios of the module, each with a separate target."""
    capabilities = request.getfixturevalue("capabilities")
    stories = request.config.stash[_STORIES]
    others = []
    for item in request.session.items:
        other: Story | None = getattr(getattr(item, "function", None), _ATTRIBUTE, None)
        if other is None or other in stories or other.__module__ != story.__module__:
            continue
        recorder = Recorder(target.address.secret)
        own = Target(target.address, capabilities, target.version, recorder)
        stories[other] = _StoryRun(own, other(own, cluster))
        others.append(stories[other])
    return others


def _run_all(first: _StoryRun, others: list[_StoryRun], cluster: Cluster) -> None:
    """Run the scenarios up to the fail-over, end the node, and run the rest of them.

    The others run even if the first one fails before: they would not run otherwise.
    """
    group = [first, *others]
    for each in group:
        cluster.take_along(each.target)
        _run_half(each, lambda halves: next(halves))
    if not _unfinished(group):
        return
    try:
        took_s = cluster.fail_over()
    except CommandError:
        # The run ends here: nothing else would close the connections of the others.
        for each in others:
            each.target.finish()
        raise
    except Exception as error:
        for each in _unfinished(group):
            each.error = error
    for each in _unfinished(group):
        _run_half(each, lambda halves: halves.send(took_s))
        cluster.let_go(each.target)
        if not each.is_over and each.error is None:
            each.error = RuntimeError("a story has more than two halves")


def _unfinished(group: list[_StoryRun]) -> list[_StoryRun]:
    return [each for each in group if not each.is_over and each.error is None]


def _run_half(story_run: _StoryRun, run: Callable[[Halves], None]) -> None:
    """Run one half; an error is kept for the case that it belongs to."""
    if story_run.left_at:
        story_run.target.extend_deadline(time.monotonic() - story_run.left_at)
    try:
        run(story_run.halves)
    except StopIteration:
        story_run.is_over = True
    except Exception as error:
        story_run.error = error
    story_run.left_at = time.monotonic()


def _report(story_run: _StoryRun, target: Target) -> None:
    """Use the record and the error of a scenario as those of the case of ``target``."""
    own = story_run.target
    target.recorder, target.peers = own.recorder, own.peers
    target.notes, target.lapses, target.chosen = own.notes, own.lapses, own.chosen
    if story_run.error is not None:
        raise story_run.error
