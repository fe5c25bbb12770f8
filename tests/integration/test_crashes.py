"""All confirmed data survives the end of a broker, and a power failure of its machine."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from stompkit.testing import LaunchConfig, RunningBroker, launch
from tests.campaign.disk import Disk, NoCompiler, built
from tests.effort import effort, in_matrix
from tests.integration.crashes.load import Account, Load, drain

#: A test shows its number; a failing round can be repeated with it.
SEEDS = effort((1,), (1, 2, 3, 4))
#: Number of kills and power failures of the broker: a few in the quick lane.
KILLS = (10, in_matrix(50))
POWER_LOSSES = (4, in_matrix(15))
LONGEST_ROUND_S = 0.15


def started(directory: Path, sync: str = "always") -> RunningBroker:
    """Launch a broker with a store in ``directory``."""
    arguments = ("--data", str(directory / "data"), "--sync", sync)
    return launch(LaunchConfig(directory=directory, arguments=arguments))


def check(account: Account, there: list[int]) -> None:
    """Compare the confirmations with the final contents of a queue."""
    missing = account.missing(set(there))
    assert not missing, f"{len(missing)} confirmed messages are lost: {sorted(missing)[:10]}"
    assert not account.undone, f"{len(account.undone)} confirmed acknowledgements were undone"
    assert there == sorted(there), "the order has changed"
    assert len(there) == len(set(there)), "messages are there twice"


@pytest.mark.parametrize("kills", KILLS)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_broker_that_is_killed_has_lost_nothing_that_it_confirmed(
    tmp_path: Path, seed: int, kills: int
) -> None:
    chance = random.Random(seed)
    account = Account()
    for _ in range(kills):
        with started(tmp_path) as broker:
            load = Load(broker.port, account, chance)
            load.run(chance.uniform(0.0, LONGEST_ROUND_S))
            broker.kill()
            load.collect()
    assert len(account.promised) > kills, "hardly anything was sent"
    assert len(account.settled) > kills, "hardly anything was acknowledged"
    with started(tmp_path) as broker:
        check(account, drain(broker.port, account))


@pytest.fixture
def disk(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disk]:
    """Start brokers with a disk that simulates power failures."""
    try:
        library = built(tmp_path_factory.getbasetemp())
    except NoCompiler as error:
        pytest.skip(str(error))
    beside = tmp_path / "disk"
    beside.mkdir()
    disk = Disk(library, tmp_path / "data", beside, has_shadow=True)
    with disk.preloaded():
        yield disk
    disk.close()


@pytest.mark.parametrize("losses", POWER_LOSSES)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_machine_that_loses_its_power_has_lost_nothing_that_was_confirmed(
    tmp_path: Path, disk: Disk, seed: int, losses: int
) -> None:
    chance = random.Random(seed)
    account = Account()
    for _ in range(losses):
        with started(tmp_path) as broker:
            load = Load(broker.port, account, chance)
            load.run(chance.uniform(0.0, LONGEST_ROUND_S))
            broker.kill()
            load.collect()
        disk.lose_power()
    assert len(account.promised) > losses, "hardly anything was sent"
    with started(tmp_path) as broker:
        check(account, drain(broker.port, account))


def contents(directory: Path) -> dict[Path, bytes]:
    """Return all files of a store except locks."""
    files = directory.rglob("*")
    return {path: path.read_bytes() for path in files if path.is_file() and "lock" not in path.name}


def test_without_syncing_the_power_takes_messages_along(tmp_path: Path, disk: Disk) -> None:
    """The disk of these tests loses unsynced data."""
    account = Account()
    with started(tmp_path, sync="never") as broker:
        load = Load(broker.port, account, random.Random(0))
        load.run(LONGEST_ROUND_S)
        broker.kill()
        load.collect()
    assert account.promised
    before = contents(tmp_path / "data")
    disk.lose_power()
    assert contents(tmp_path / "data") != before
