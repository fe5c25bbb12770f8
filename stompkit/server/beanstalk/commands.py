"""The commands of beanstalkd, with the handlers of those for tubes."""

from __future__ import annotations

from typing import Final

from stompkit.server.beanstalk.inspection_commands import (
    on_list_tube_used,
    on_list_tubes,
    on_list_tubes_watched,
    on_peek,
    on_peek_buried,
    on_peek_delayed,
    on_peek_ready,
    on_stats,
    on_stats_job,
    on_stats_tube,
)
from stompkit.server.beanstalk.job_commands import (
    on_bury,
    on_delete,
    on_put,
    on_release,
    on_reserve,
    on_reserve_job,
    on_touch,
)
from stompkit.server.beanstalk.kick_commands import on_kick, on_kick_job
from stompkit.server.beanstalk.parser import BAD_FORMAT, Command
from stompkit.server.beanstalk.replies import NOT_FOUND, OUT_OF_MEMORY
from stompkit.server.beanstalk.session import Answer, Handler, Session

__all__ = ["COMMANDS"]


def on_use(session: Session, command: Command) -> Answer:
    """Use a tube."""
    if not session.hub.is_allowed(command.tube):
        return BAD_FORMAT
    session.hub.use(session, command.tube)
    return b"USING %b\r\n" % command.tube.encode()


def on_watch(session: Session, command: Command) -> Answer:
    """Watch one more tube."""
    hub = session.hub
    if not hub.is_allowed(command.tube):
        return BAD_FORMAT
    if len(session.watched) >= hub.settings.max_watched and command.tube not in session.watched:
        return OUT_OF_MEMORY
    hub.watch(session, command.tube)
    return b"WATCHING %d\r\n" % len(session.watched)


def on_ignore(session: Session, command: Command) -> Answer:
    """Stop watching a tube, unless it is the last one."""
    if command.tube in session.watched and len(session.watched) == 1:
        return b"NOT_IGNORED\r\n"
    session.hub.ignore(session, command.tube)
    return b"WATCHING %d\r\n" % len(session.watched)


def on_pause_tube(session: Session, command: Command) -> Answer:
    """Pause a tube: none of its jobs is reserved for some time."""
    hub, seconds = session.hub, command.numbers[0]
    if not hub.exists(command.tube):
        return NOT_FOUND
    hub.pause(command.tube, seconds)
    hub.count(hub.pausings, command.tube)
    return b"PAUSED\r\n"


def on_quit(session: Session, command: Command) -> Answer:
    """Close the connection."""
    session.quit()
    return None


#: The handlers by command name.
COMMANDS: Final[dict[str, Handler]] = {
    "put": on_put,
    "use": on_use,
    "reserve": on_reserve,
    "reserve-with-timeout": on_reserve,
    "reserve-job": on_reserve_job,
    "delete": on_delete,
    "release": on_release,
    "bury": on_bury,
    "touch": on_touch,
    "watch": on_watch,
    "ignore": on_ignore,
    "kick": on_kick,
    "kick-job": on_kick_job,
    "peek": on_peek,
    "peek-ready": on_peek_ready,
    "peek-delayed": on_peek_delayed,
    "peek-buried": on_peek_buried,
    "stats": on_stats,
    "stats-tube": on_stats_tube,
    "stats-job": on_stats_job,
    "list-tubes": on_list_tubes,
    "list-tube-used": on_list_tube_used,
    "list-tubes-watched": on_list_tubes_watched,
    "pause-tube": on_pause_tube,
    "quit": on_quit,
}
