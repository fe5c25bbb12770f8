"""The process of a worker: it runs the callback, and never blocks on other processes.

The parent sends lists of keys and receives reports. When the parent's end of the pipe is closed,
because it has stopped or was killed, the worker ends. An idle worker ends immediately; a busy one
after the current call, if that ends in time.
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

from stompkit.replication.workers.messages import Key

__all__ = ["Report", "describe", "reports", "work"]

#: For the next keys, in order, ``None`` or the reason of failure; or one reason for all the rest.
Report = list[str | None] | str

#: Maximum length of a reason, which goes to a log and to message headers.
_MAX_REASON = 1000


def describe(error: BaseException) -> str:
    """Return an exception in one line, with the place where it was raised."""
    text = "".join(traceback.format_exception_only(error)).strip()
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return text[:_MAX_REASON] + place


def reports(callback: Callable[[Any], Any], keys: list[Key], *, multi: bool) -> Iterator[Report]:
    """Call the callback, and yield the result of each key."""
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
    """Process keys until the parent closes the pipe; the first report is ``None``, or a reason.

    ``pickled`` is the callback. ``grace_s`` is the maximum time in seconds of the current call
    after the parent has ended.
    """
    # The parent receives the signal as well, and ends the worker: Ctrl-C goes to all processes of a
    # terminal. A handler is used because an ignored signal would also be ignored in child processes
    # of a callback.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave_it_to_the_parent)
    try:
        callback = pickle.loads(pickled)
    except Exception as error:
        pipe.send(f"the callback cannot be imported in a worker: {describe(error)}")
        return
    batches: SimpleQueue[list[Key] | None] = SimpleQueue()
    threading.Thread(target=_receive, args=(pipe, batches, grace_s), daemon=True).start()
    try:
        pipe.send(None)
        while (keys := batches.get()) is not None:
            for report in reports(callback, keys, multi=multi):
                pipe.send(report)
    except OSError:
        pass  # the parent has ended


def _leave_it_to_the_parent(number: int, frame: FrameType | None) -> None:
    """Do nothing."""


def _receive(pipe: Connection, batches: SimpleQueue[list[Key] | None], grace_s: float) -> None:
    try:
        while True:
            batches.put(pipe.recv())
    except (EOFError, OSError):
        batches.put(None)
    # A worker does not outlive its parent, even if the callback blocks.
    time.sleep(grace_s)
    os._exit(1)
