"""Statistics of the server, of tubes and of jobs, as beanstalkd's YAML documents."""

from __future__ import annotations

import os
import platform
import resource
from collections.abc import Iterable, Mapping

import stompkit
from stompkit.server.beanstalk.finding import Found
from stompkit.server.beanstalk.hub import Hub
from stompkit.server.beanstalk.jobs import DEFAULT_TUBE, delay_of, pri_of, since_created, ttr_of
from stompkit.server.domain.queues import pulling

__all__ = ["job_stats", "names", "server_stats", "tube_stats"]

#: Priority below which jobs are urgent.
_URGENT: int = 1024
#: Number of messages at the front of a queue among which the urgent ones are counted.
_MOST_COUNTED: int = 1_000

_COUNTED = (
    "put peek peek-ready peek-delayed peek-buried reserve reserve-with-timeout delete release use"
    " watch ignore bury kick touch stats stats-job stats-tube list-tubes list-tube-used"
    " list-tubes-watched pause-tube"
).split()


def _document(pairs: Mapping[str, object]) -> str:
    return "---\n" + "".join(f"{key}: {value}\n" for key, value in pairs.items())


def names(tubes: Iterable[str]) -> str:
    """Return a list of tubes."""
    return "---\n" + "".join(f"- {tube}\n" for tube in tubes)


def _jobs(hub: Hub, tube: str) -> dict[str, int]:
    """Return the number of jobs of a tube in each state."""
    queue, dead_letters = hub.queue(tube), hub.dead_letters(tube)
    ready = delayed = reserved = urgent = 0
    if queue is not None:
        ready, delayed = queue.ready, queue.delayed
        reserved = max(0, queue.messages - ready - delayed)
        has_priorities = queue.policy.priority
        front = pulling.front(queue, _MOST_COUNTED)
        urgent = sum(
            pri_of(entry.message, has_priorities=has_priorities) < _URGENT for entry in front
        )
    return {
        "current-jobs-urgent": urgent,
        "current-jobs-ready": ready,
        "current-jobs-reserved": reserved,
        "current-jobs-delayed": delayed,
        "current-jobs-buried": 0 if dead_letters is None else dead_letters.ready,
    }


def tube_stats(hub: Hub, tube: str) -> str:
    """Return the statistics of a tube."""
    until = hub.paused_until(tube)
    waiting = sum(each.is_waiting and tube in each.watched for each in hub.clients)
    return _document(
        {
            "name": f'"{tube}"',
            **_jobs(hub, tube),
            "total-jobs": hub.puts[tube],
            "current-using": hub.using[tube],
            "current-watching": hub.watching[tube],
            "current-waiting": waiting,
            "cmd-delete": hub.deletes[tube],
            "cmd-pause-tube": hub.pausings[tube],
            "pause": hub.pauses[tube].seconds if until else 0,
            "pause-time-left": int(until - hub.broker.now) if until else 0,
        }
    )


def job_stats(hub: Hub, found: Found) -> str:
    """Return the statistics of a job."""
    message, job, scheduler = found.message, found.job, hub.broker.scheduler
    reservation = hub.reserved.get(job.number)
    pri = pri_of(message, has_priorities=found.queue.policy.priority)
    left = found.due - scheduler.wall if found.due else 0.0
    if reservation is not None:
        left = reservation.deadline - scheduler.now
    reserves, timeouts, releases, buries, kicks = job.counts(message, found.deliveries)
    return _document(
        {
            "id": job.number,
            "tube": f'"{job.tube}"',
            "state": found.state,
            "pri": pri,
            "age": since_created(message, scheduler.wall),
            "delay": delay_of(message),
            "ttr": ttr_of(message, hub.settings.default_ttr_s),
            "time-left": int(left),
            "file": 0,
            "reserves": reserves,
            "timeouts": timeouts,
            "releases": releases,
            "buries": buries,
            "kicks": kicks,
        }
    )


def server_stats(hub: Hub) -> str:
    """Return the statistics of the server; counts are of this front end, not of the broker."""
    tubes = list(hub.tubes())
    jobs = dict.fromkeys(_jobs(hub, DEFAULT_TUBE), 0)
    for tube in tubes:
        for key, count in _jobs(hub, tube).items():
            jobs[key] += count
    usage = resource.getrusage(resource.RUSAGE_SELF)
    name = os.uname()
    return _document(
        {
            **jobs,
            **{f"cmd-{each}": hub.commands[each] for each in _COUNTED},
            "job-timeouts": hub.timeouts,
            "total-jobs": hub.jobs,
            "max-job-size": hub.settings.max_job_octets,
            "current-tubes": len(tubes),
            "current-connections": len(hub.clients),
            "current-producers": sum(each.is_producer for each in hub.clients),
            "current-workers": sum(each.is_worker for each in hub.clients),
            "current-waiting": sum(each.is_waiting for each in hub.clients),
            "total-connections": hub.connections,
            "pid": os.getpid(),
            "version": f'"stompkit {stompkit.__version__}"',
            "rusage-utime": f"{usage.ru_utime:.6f}",
            "rusage-stime": f"{usage.ru_stime:.6f}",
            "uptime": int(hub.broker.now - hub.started),
            "binlog-oldest-index": 0,
            "binlog-current-index": 0,
            "binlog-records-migrated": 0,
            "binlog-records-written": 0,
            "binlog-max-size": 0,
            "draining": str(hub.settings.draining).lower(),
            "id": hub.id,
            "hostname": f'"{name.nodename}"',
            "os": f'"{name.version}"',
            "platform": f'"{platform.machine()}"',
        }
    )
