"""One beanstalkd client: its commands in order."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeAlias

from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from stompkit.frames import RemoteProtocolError
from stompkit.server.beanstalk.client import Client
from stompkit.server.beanstalk.hub import Hub
from stompkit.server.beanstalk.parser import BAD_FORMAT, Command, Mistake, Parser
from stompkit.server.beanstalk.replies import INTERNAL_ERROR, NOT_FOUND, OUT_OF_MEMORY, Replies
from stompkit.server.beanstalk.worker import Worker
from stompkit.server.domain.broker import Broker
from stompkit.server.domain.destinations import BlockedError
from stompkit.server.domain.errors import RefusedError
from stompkit.server.domain.queues.queue import Queue
from stompkit.server.interfaces import Outlet, StoreError
from stompkit.server.log import client_events

__all__ = ["Answer", "Handler", "Session"]

#: A reply, ``None`` if it follows later, or a coroutine if the store must be asked.
Answer: TypeAlias = "bytes | Coroutine[Any, Any, bytes] | None"
#: Runs a command; may raise ``RefusedError``.
Handler: TypeAlias = "Callable[[Session, Command], Answer]"


#: Maximum time in seconds for one client's commands before others are served.
_TURN_S: Final = 0.01
#: Maximum number of bytes buffered while a command runs.
_MOST_UNREAD: Final = 65_536
#: Commands that do not wait until the store has the changes of earlier commands.
_OVERLAPPING: Final = frozenset({"put", "delete", "release", "bury", "touch"})
_REFUSALS: Final = {
    "bad-header": BAD_FORMAT,
    "bad-destination": BAD_FORMAT,
    "queue-full": OUT_OF_MEMORY,
    "queue-too-small": OUT_OF_MEMORY,
    "too-many-destinations": OUT_OF_MEMORY,
    "unknown-destination": NOT_FOUND,
}


class Session(Client):
    """A beanstalkd client as a connection of the broker.

    Its reservations are pending acknowledgements of the connection, and return to their queues when
    it ends. Replies are sent in the order of the commands. ``put``, ``delete`` and similar commands
    overlap while they wait for the store; all other commands wait for them.
    """

    def __init__(
        self,
        hub: Hub,
        commands: Mapping[str, Handler],
        broker: Broker,
        outlet: Outlet,
        now: float,
    ) -> None:
        """Start with the tube ``default``."""
        super().__init__(broker, outlet, now)
        self.hub = hub
        self.worker = Worker(hub, self)
        self.reservations = self.worker.reservations
        self.replies = Replies(self)
        self._commands = commands
        self._parser = Parser(hub.settings.max_job_octets)
        #: A command that waits until the store has the changes of earlier ones.
        self._next: Command | None = None
        #: The command that runs while it waits for the store.
        self._task: Deferred[bytes] | None = None
        #: A command that waits for room in a queue.
        self._refused: Command | None = None
        self._is_stalled = self._is_working = self._is_slow = False

    # Input.

    def opened(self) -> None:
        """Start the session; close it if there are too many clients."""
        super().opened()
        if not self._closing:
            self.hub.add(self)

    def receive(self, data: bytes, now: float) -> None:
        """Process bytes from the client."""
        self.broker.now = now
        if not self._closing:
            self._parser.feed(data)
            self._work_on()

    def ended(self, now: float) -> None:
        """Record that the client sends no more; a waiting ``reserve`` times out."""
        self.broker.now = now
        self._at_end = True
        if self.is_waiting:
            self.worker.stop_waiting(b"TIMED_OUT\r\n")
        self._work_on()

    def _work_on(self) -> None:
        """Run as many of the received commands as possible."""
        if self._is_working:
            return
        self._is_working = True
        began = self.broker.clock.seconds()
        try:
            while self._is_free and (command := self._next_command()) is not None:
                if not self._may_begin(command):
                    self._next = command
                    break
                self._do(command)
                self._yield(began)
        finally:
            self._is_working = False
        if self._closing:
            return
        if self._at_end and self._is_free and self._next is None and self.replies.are_sent:
            self._leave()
            return
        # Input is read for as long as possible, since only reading detects a closed connection.
        is_slow = self._parser.buffered > _MOST_UNREAD and not self._is_free
        if is_slow != self._is_slow:
            self._is_slow = is_slow
            (self.outlet.pause if is_slow else self.outlet.resume)()

    def _yield(self, began: float) -> None:
        """Defer the remaining commands until others are served, if these took too long."""
        broker = self.broker
        if broker.clock.seconds() - began > _TURN_S and not self._is_stalled:
            self._is_stalled = True
            broker.later(0.0, self.go_on)

    @property
    def has_input_waiting(self) -> bool:
        """Return True if a command of the client waits to be run."""
        waits = self._next is not None or self._task is not None or self._refused is not None
        return waits or bool(self._parser.buffered) or self._has_unread

    @property
    def _is_free(self) -> bool:
        """True if the next command can be started."""
        return self.has_room and not (
            self._closing
            or self.is_waiting
            or self._is_stalled
            or self._task is not None
            or self._refused is not None
        )

    def _next_command(self) -> Command | None:
        command, self._next = self._next, None
        if command is not None:
            return command
        found = self._parser.next()
        while isinstance(found, Mistake):
            self.replies.add(found.reply)
            found = self._parser.next() if self._is_free else None
        return found

    def _may_begin(self, command: Command) -> bool:
        return self.replies.are_sent or command.name in _OVERLAPPING

    def _do(self, command: Command) -> None:
        """Run a command; its changes and its reply wait for the store together."""
        self.hub.commands[command.name] += 1
        try:
            answer = self._commands[command.name](self, command)
        except BlockedError as blocked:
            self._wait_for_space(command, blocked)
            return
        except RefusedError as refused:
            answer = _REFUSALS.get(refused.code, INTERNAL_ERROR)
        if answer is None:
            return
        if isinstance(answer, bytes):
            self.answer(answer)
            return
        self._begin(answer)

    def _begin(self, work: Coroutine[Any, Any, bytes]) -> None:
        """Start a command that waits for the store."""
        task: Deferred[bytes] = Deferred.fromCoroutine(work)
        self._task = task
        task.addCallbacks(self._done, self._failed)

    def _done(self, reply: bytes) -> None:
        self._task = None
        self.finish(reply)
        self.broker.flush()

    def _failed(self, failure: Failure) -> None:
        self._task = None
        error = failure.value
        if isinstance(error, CancelledError):
            return
        reply = INTERNAL_ERROR
        if isinstance(error, RefusedError):
            reply = _REFUSALS.get(error.code, INTERNAL_ERROR)
        elif not isinstance(error, StoreError):
            client_events.beanstalk_command_failed(failure=failure)
        self.finish(reply)
        self.broker.flush()

    def _wait_for_space(self, command: Command, blocked: BlockedError) -> None:
        queue = blocked.destination
        assert isinstance(queue, Queue)  # only queues can be full
        self._refused = command
        self._wait_for(queue)

    def try_again(self) -> bool:
        """Put the job that has waited for room; return False if there is still none."""
        command = self._admitted()
        if command is None or self._closing:
            return True
        self.hub.commands[command.name] -= 1
        self._do(command)
        if self._refused is not None:
            return False
        self._work_on()
        return True

    def _admitted(self) -> Command | None:
        """Return the command that has waited for room, and stop its wait."""
        command, self._refused, self._blocked_by = self._refused, None, None
        return command

    def go_on(self) -> None:
        """Resume after a wait for the store."""
        self._is_stalled = False
        self._work_on()

    # Output.

    def answer(self, reply: bytes) -> None:
        """Reply to a command, once the store has its changes."""
        if not self._closing and self.replies.add_stored(reply):
            self._is_stalled = True

    def finish(self, reply: bytes) -> None:
        """Reply to the command that has waited, and run those that follow."""
        self.answer(reply)
        self._work_on()

    def look_again(self) -> None:
        """Check for a job, if the client waits for one."""
        self.worker.look_again()

    def committed(self, receipt: str | None, error: StoreError | None) -> None:
        """Send the reply that has waited for the store."""
        if self.replies.committed(receipt or "", error):
            self._work_on()

    def set_writable(self, writable: bool, now: float) -> None:  # noqa: FBT001 (a state, not a choice)
        """Record if the transport accepts more bytes; no commands run while it does not."""
        self.broker.now = now
        self.has_room = writable and not self._closing
        if self.has_room:
            self._work_on()

    # Closing.

    def quit(self) -> None:
        """Close at the client's request."""
        self._leave()

    def _leave(self) -> None:
        if not self._closing:
            self._closing = True
            self._end()

    def fail(self, message: str, code: str, *, receipt: str | None = None) -> None:
        """Close; the protocol has no error message for this."""
        self.refuse(RemoteProtocolError(message, code=code))

    def release(self) -> None:
        """Return all reservations, and cancel all waits."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        self._refused = None
        self.worker.release()
        super().release()
        self.hub.remove(self)
