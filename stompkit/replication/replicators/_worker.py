"""What runs in the process of a worker: the callback, and nothing that could wait for anybody.

The parent sends lists of keys and gets reports. When its end of the pipe is closed, be it that it
has stopped or that it was killed, the worker ends: at once if it is idle, after the call under way
if that ends in time.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from queue import SimpleQueue
from types import FrameType
from typing import Any

from stompkit.replication.replicators.messages import Key

__all__ = ["Report", "describe", "reports", "work"]

#: For the next keys, in order, ``None`` or why it has failed; or why all that are left have.
Report = list[str | None] | str

#: A reason is for a log and for headers of messages, not a place for documents.
_MAX_REASON = 1000


def describe(error: BaseException) -> str:
    """An exception in one line, with the place where it was raised."""
    text = "".join(traceback.format_exception_only(error)).strip()
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return text[:_MAX_REASON] + place


def reports(callback: Callable[[Any], Any], keys: list[Key], *, multi: bool) -> Iterator[Report]:
    """Call the callback, and say of each key what has become of it."""
    if multi:
        yield _try_all(callback, keys)
        return
    for key in keys:
        try:
            given = callback(key)
        except (Exception, SystemExit) as error:
            yield [describe(error)]
        else:
            yield [_reason(given)]


def _try_all(callback: Callable[[Any], Any], keys: list[Key]) -> Report:
    try:
        given = callback(list(keys))
    except (Exception, SystemExit) as error:
        return describe(error)
    if not isinstance(given, Sequence) or isinstance(given, str):
        reason = _reason(given)
        return [None] * len(keys) if reason is None else reason
    if len(given) != len(keys):
        return f"the callback returned {len(given)} results for {len(keys)} keys"
    return [_reason(each) for each in given]


def _reason(given: object) -> str | None:
    if given is True:
        return None
    if given is False:
        return "the callback returned False"
    return f"the callback returned {given!r:.100}, and neither True nor False"


def work(pipe: Connection, pickled: bytes, grace_s: float, *, multi: bool) -> None:
    """Do what the parent sends until it closes the pipe; the first report is ``None``, or a reason.

    ``pickled`` is the callback. ``grace_s`` is how long a call may take that is under way when the
    parent has gone.
    """
    # The parent is told, too, and says when to end: Ctrl-C goes to all processes of a terminal. It
    # is a handler, since what is ignored would be ignored by the processes of a callback, too.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave_it_to_the_parent)
    try:
        callback = pickle.loads(pickled)
    except Exception as error:
        pipe.send(f"the callback can't be imported in a worker: {describe(error)}")
        return
    batches: SimpleQueue[list[Key] | None] = SimpleQueue()
    threading.Thread(target=_receive, args=(pipe, batches, grace_s), daemon=True).start()
    try:
        pipe.send(None)
        while (keys := batches.get()) is not None:
            for report in reports(callback, keys, multi=multi):
                pipe.send(report)
    except OSError:
        pass  # nobody is there any more to tell it


def _leave_it_to_the_parent(number: int, frame: FrameType | None) -> None:
    """Do nothing."""


def _receive(pipe: Connection, batches: SimpleQueue[list[Key] | None], grace_s: float) -> None:
    try:
        while True:
            batches.put(pipe.recv())
    except (EOFError, OSError):
        batches.put(None)
    # Whatever the callback waits for: a worker does not outlive its parent.
    time.sleep(grace_s)
    os._exit(1)
