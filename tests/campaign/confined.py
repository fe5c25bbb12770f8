"""Runs in separate namespaces: a network that is taken down, a file system that is full.

The mounts and the network are visible in the namespaces only, and vanish with the processes.
``python -m tests.campaign.confined`` runs inside.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from tests.campaign.apart import APART, Apart, play_inside
from tests.campaign.faults import Fault
from tests.campaign.plan import Plan
from tests.campaign.running import Clients
from tests.campaign.scene import Scene, Script

__all__ = ["Confined", "missing"]

_MEBIBYTE: Final = 1 << 20
#: Size of a small file system.
_SIZE_BYTES: Final = 64 * _MEBIBYTE


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


# Preparation and faults inside the namespaces.


_UP: Final = ("ip", "link", "set", "lo", "up")


def _up(plan: Plan, directory: Path) -> None:
    _run(*_UP)


def _down(scene: Scene) -> Script:
    """Drop all packets silently for a while."""
    scene.recorder.note("the network is down")
    _run("ip", "link", "set", "lo", "down")
    # The longest of these exceeds the timeouts of clients.
    yield scene.while_(scene.chance.choice((0.1, 0.5, 2.5)))
    _run(*_UP)
    scene.recorder.note("the network is up")


def _small(plan: Plan, directory: Path) -> None:
    data = directory / "data"
    data.mkdir()
    in_memory = ("mount", "-t", "tmpfs", "-o", f"size={_SIZE_BYTES}", "tmpfs", str(data))
    if plan.chance("file system").random() < 0.5:
        _run(*in_memory)
        return
    image = directory / "image"
    with image.open("wb") as file:
        file.truncate(_SIZE_BYTES)
    _run("mkfs.ext4", "-q", str(image))
    try:
        _run("mount", "-o", "loop", str(image), str(data))
    except subprocess.CalledProcessError:
        # A loop device may not be available.
        _run(*in_memory)
    else:
        # mkfs creates this folder, and the broker does not expect it.
        (data / "lost+found").rmdir()


def _fill(scene: Scene) -> Script:
    """Fill the file system to the last block."""
    scene.recorder.note("the file system is full")
    filler = scene.brokers.data / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (_MEBIBYTE, 4_096, 1):
            with suppress(OSError):
                while True:
                    file.write(bytes(size))
    scene.load.let_late_one_try()
    yield scene.refusals(scene.chance.randint(1, 10), 1.5)
    yield scene.while_(scene.chance.uniform(0.0, 0.3))
    filler.unlink()
    scene.recorder.note("there is room again")
    if scene.chance.random() < 0.3:
        scene.crash()


class _Place(NamedTuple):
    """Namespaces, their preparation, and the fault in them."""

    namespaces: tuple[str, ...]
    programs: tuple[str, ...]
    #: A command that succeeds if the operations are allowed there.
    trial: tuple[str, ...]
    prepare: Callable[[Plan, Path], None]
    fault: Fault


_TRIAL_MOUNT: Final = ("mount", "-t", "tmpfs", "tmpfs", tempfile.gettempdir())
_PLACES: Final = {
    "namespace": _Place(("--net",), ("ip",), _UP, _up, Fault("", _down)),
    "loop-disk": _Place(
        ("--mount",), ("mount", "mkfs.ext4"), _TRIAL_MOUNT, _small, Fault("", _fill)
    ),
}


def missing(name: str) -> str:
    """Return a description of what this machine lacks or forbids for a run of that name."""
    place = _PLACES[name]
    programs = [each for each in ("unshare", *place.programs) if shutil.which(each) is None]
    if programs:
        return f"the programs {', '.join(programs)}"
    command = ["unshare", *place.namespaces, *APART, *place.trial]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"what is not allowed here ({done.stderr.strip()})" if done.returncode else ""


class Confined(Apart):
    """A run of clients with a broker in namespaces."""

    def __init__(self, plan: Plan, directory: Path, report: Path) -> None:
        """Prepare without starting anything."""
        namespaces = _PLACES[plan.fault].namespaces
        super().__init__(plan, directory, report, namespaces=namespaces, module=__name__)


def _inside(plan: Plan, directory: Path, report: Path) -> Clients:
    place = _PLACES[plan.fault]
    place.prepare(plan, directory)
    return Clients(plan, place.fault, directory, report)


if __name__ == "__main__":
    play_inside(_inside)
