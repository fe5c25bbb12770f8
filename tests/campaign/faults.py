"""The faults: failures of a broker while clients use it.

Each is a script of one round; it yields the conditions for which it waits while the clients
continue. A run has several rounds, at moments determined by its seed. Each round repairs its faults
before it ends.
"""

from __future__ import annotations

import errno
import resource
import socket
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final, NamedTuple

from stompkit.testing.proxy import Proxy
from tests.campaign.disk import Disk, Number
from tests.campaign.lines import LINES, RARE
from tests.campaign.scene import Needs, Scene, Script, Until
from tests.campaign.stage import Line
from tests.campaign.wire import LOCAL, Wire

__all__ = ["FAULTS", "Fault", "fault_of"]


#: Larger than the available memory.
_MUCH_BYTES: Final = 32 << 20
#: The rare fault has one in this many seeds.
_RARELY: Final = 100


class Fault(NamedTuple):
    """A fault, its requirements, and the permitted exit of the broker at the end of the run."""

    title: str
    round: Callable[[Scene], Script]
    needs: Needs = Needs()
    rounds: int = 3


def _nothing(scene: Scene) -> Script:
    yield scene.while_(0.0)


# The process.


def _kill(scene: Scene) -> Script:
    yield scene.while_(0.0)
    scene.crash()


def _kill_in_write(scene: Scene) -> Script:
    disk = _disk(scene)
    disk[Number.DIE_AFTER] = disk[Number.WRITES] + scene.chance.randint(1, 40)
    yield Until(lambda: not scene.brokers.is_alive, 2.0)
    scene.crash()


def _stop(scene: Scene) -> Script:
    yield scene.while_(0.0)
    scene.stop()


def _pause(scene: Scene) -> Script:
    scene.recorder.note("paused")
    scene.brokers.active.pause()
    yield scene.while_(scene.chance.uniform(0.02, 0.5))
    scene.brokers.active.resume()
    scene.recorder.note("resumed")


def _descriptors(scene: Scene) -> Script:
    scene.recorder.note("out of descriptors")
    scene.limit(resource.RLIMIT_NOFILE, scene.descriptors + scene.chance.randint(0, 3))
    with ExitStack() as stack:
        for _ in range(20):
            idle = stack.enter_context(socket.socket())
            idle.setblocking(False)
            idle.connect_ex((LOCAL, scene.brokers.ports[0]))
        for client in scene.load.clients:
            if scene.chance.random() < 0.5:
                client.leave()
        yield scene.while_(scene.chance.uniform(0.1, 0.6))
    scene.limit(resource.RLIMIT_NOFILE, -1)
    scene.revive()


def _memory(scene: Scene) -> Script:
    # The broker may have ended because of the round before.
    scene.revive()
    scene.recorder.note("out of memory")
    more = scene.chance.choice((0, 1 << 18, 1 << 20))
    scene.limit(resource.RLIMIT_AS, scene.address_space + more)
    greedy = Wire((LOCAL, scene.brokers.ports[0]), {})

    def feed() -> bool:
        """Send a message for which there is no memory."""
        greedy.read()
        if greedy.take():
            greedy.send("SEND", {"destination": "/queue/greedy"}, bytes(_MUCH_BYTES))
        greedy.write()
        return greedy.is_over

    yield Until(feed, 2.0)
    yield scene.while_(scene.chance.uniform(0.0, 0.5))
    greedy.close()
    scene.limit(resource.RLIMIT_AS, -1)
    scene.revive()


# The disk.


def _disk(scene: Scene) -> Disk:
    assert scene.disk is not None, "a fault that needs a disk has not said so"
    return scene.disk


def _power(scene: Scene) -> Script:
    disk = _disk(scene)
    if scene.chance.random() < 0.5:
        # Die within one of the next writes.
        disk[Number.DIE_AFTER] = disk[Number.WRITES] + scene.chance.randint(1, 40)
        yield Until(lambda: not scene.brokers.is_alive, 2.0)
    else:
        yield scene.while_(0.0)
    scene.crash(power=True)


def _full(scene: Scene) -> Script:
    disk = _disk(scene)
    scene.recorder.note("the disk is full")
    disk[Number.GROW_ERROR] = errno.ENOSPC
    scene.load.let_late_one_try()
    yield scene.refusals(scene.chance.randint(1, 10), 1.5)
    yield from _troubled(scene)
    disk.heal()
    scene.recorder.note("there is room again")


def _no_files(scene: Scene) -> Script:
    scene.recorder.note("no file can be written")
    broker = scene.brokers.active
    broker.fill_disk()
    scene.load.let_late_one_try()
    yield scene.refusals(scene.chance.randint(1, 10), 1.5)
    yield scene.while_(scene.chance.uniform(0.0, 0.3))
    if scene.chance.random() < 0.3:
        scene.crash()
    else:
        broker.free_disk()
    scene.recorder.note("files can be written again")


def _syncs_fail(scene: Scene) -> Script:
    yield from _failing(scene, Number.SYNC_ERROR, errno.EIO)


def _writes_fail(scene: Scene) -> Script:
    if scene.chance.random() < 0.3:
        yield from _failing(scene, Number.SHORT_WRITES, 1)
    else:
        yield from _failing(scene, Number.WRITE_ERROR, errno.EIO)


def _failing(scene: Scene, number: Number, value: int) -> Script:
    disk = _disk(scene)
    scene.recorder.note(f"{number.name}")
    disk[Number.EVERY] = scene.chance.choice((1, 2, 5, 20))
    disk[number] = value
    scene.load.let_late_one_try()
    wanted = disk[Number.STRUCK] + scene.chance.randint(1, 10)
    yield Until(lambda: disk[Number.STRUCK] >= wanted, 1.0)
    yield from _troubled(scene)
    disk.heal()
    scene.recorder.note("mended")


def _troubled(scene: Scene) -> Script:
    """Continue for a while with the fault, and perhaps crash."""
    yield scene.while_(scene.chance.uniform(0.0, 0.3))
    disk = _disk(scene)
    draw = scene.chance.random()
    if draw < 0.2:
        scene.crash()
    elif draw < 0.4 and disk.can_lose_power:
        scene.crash(power=True)


def _slow(scene: Scene) -> Script:
    disk = _disk(scene)
    delay_us = scene.chance.choice((2_000, 20_000, 150_000))
    scene.recorder.note(f"syncs take {delay_us} us longer")
    disk[Number.SYNC_DELAY] = delay_us
    yield scene.while_(scene.chance.uniform(0.2, 0.6))
    if scene.chance.random() < 0.4:
        scene.crash(power=scene.chance.random() < 0.5)
    disk.heal()


def _clock(scene: Scene) -> Script:
    disk = _disk(scene)
    seconds = scene.chance.choice((1, 60, 3_600, 2 * 86_400)) * scene.chance.choice((-1, 1))
    disk[Number.CLOCK] = seconds
    scene.recorder.note(f"the clock is {seconds} s ahead")
    yield scene.while_(scene.chance.uniform(0.1, 0.4))
    if scene.chance.random() < 0.4:
        scene.crash()


# The network.


def _proxy(scene: Scene) -> Proxy:
    assert scene.proxy is not None, "a fault that needs a proxy has not said so"
    return scene.proxy


def _cut(scene: Scene) -> Script:
    proxy, chance = _proxy(scene), scene.chance
    command = chance.choice(("SEND", "COMMIT", "ACK", "MESSAGE", "RECEIPT", None))
    how = chance.choice((proxy.reset, proxy.close, proxy.truncate if command else proxy.reset))
    scene.recorder.note(f"{how.__name__} at {command}")
    if command is None:
        how()
        yield scene.while_(0.0)
    else:
        fault = how(command, nth=chance.randint(1, 20))
        yield Until(lambda: fault.count > 0, 1.0)
        fault.remove()


def _delay(scene: Scene) -> Script:
    proxy, chance = _proxy(scene), scene.chance
    scene.recorder.note("the network is slow")
    with proxy.delay(chance.choice((0.001, 0.02)), jitter_s=chance.choice((0.0, 0.02))):
        yield scene.while_(chance.uniform(0.3, 0.8))


def _partition(scene: Scene) -> Script:
    proxy, chance = _proxy(scene), scene.chance
    scene.recorder.note("the network is cut")
    with proxy.hold():
        # The longest of these exceeds the timeouts of clients.
        yield scene.while_(chance.choice((0.1, 0.5, 2.0)))
    scene.recorder.note("the network is whole")


def _half_open(scene: Scene) -> Script:
    proxy, chance = _proxy(scene), scene.chance
    gone = chance.choice(("broker", "client"))
    scene.recorder.note(f"the {gone} seems gone to the other side")
    with proxy.half_open(gone=gone):  # type: ignore[arg-type]
        yield scene.while_(chance.choice((0.3, 1.8)))


def _mixed(scene: Scene) -> Script:
    rounds = (_kill, _stop, _pause, _power, _full, _syncs_fail, _slow, _clock, _cut, _partition)
    first, second = scene.chance.sample(rounds, 2)
    yield from first(scene)
    yield from second(scene)


_PROXY: Final = Needs(proxy=True)
_DISK: Final = Needs(disk=True)
_POWER: Final = Needs(power=True)
_PAIR: Final = Needs(standby=True)

FAULTS: Final[dict[str, Fault | Line]] = {
    "none": Fault("nothing, but the end", _nothing),
    "kill": Fault("kill -9", _kill),
    "kill-in-write": Fault("kill -9 within a write", _kill_in_write, _DISK),
    "stop": Fault("SIGTERM", _stop),
    "pause": Fault("SIGSTOP, SIGCONT", _pause, rounds=6),
    "standby-kill": Fault("kill -9, a standby takes over", _kill, _PAIR, 2),
    "standby-stop": Fault("SIGTERM, a standby takes over", _stop, _PAIR, 2),
    "power": Fault("power loss", _power, _POWER),
    "full": Fault("disk full", _full, _POWER),
    "file-limit": Fault("no file can be written, the log included", _no_files),
    "sync-error": Fault("fsync fails", _syncs_fail, _POWER),
    "write-error": Fault("writes fail, or are short", _writes_fail, _POWER),
    "slow-disk": Fault("slow disk", _slow, _POWER),
    "clock": Fault("the clock jumps", _clock, _DISK, 4),
    "descriptors": Fault("no more file descriptors", _descriptors),
    "memory": Fault("no more memory", _memory, Needs(may_end=True)),
    "cut": Fault("connections cut, also in frames", _cut, _PROXY, 6),
    "delay": Fault("slow network", _delay, _PROXY),
    "partition": Fault("network that transports nothing", _partition, _PROXY),
    "half-open": Fault("connections lost on one side", _half_open, _PROXY),
    "mixed": Fault("two of them at a time", _mixed, Needs(power=True, proxy=True)),
    **LINES,
}


def fault_of(seed: int) -> str:
    """Return the fault of a seed: round robin, except that the slow one has each 100th seed."""
    if seed % _RARELY == 0:
        return RARE
    often = [name for name in FAULTS if name != RARE]
    return often[(seed - seed // _RARELY) % len(often)]
