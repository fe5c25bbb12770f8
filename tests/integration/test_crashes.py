"""What a broker has confirmed survives its death, and that of the machine."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from stompkit.testing import LaunchConfig, RunningBroker, launch
from tests.effort import effort
from tests.integration.crashes.load import Account, Load, drain

#: A failing round is run again with the number that its test shows.
SEEDS = effort((1,), (1, 2, 3, 4))
KILLS = 50
POWER_LOSSES = 15
LONGEST_ROUND_S = 0.15
POWER = Path(__file__).parent / "crashes" / "power.c"


def started(directory: Path, sync: str = "always") -> RunningBroker:
    """Launch a broker with a store in ``directory``."""
    arguments = ("--data", str(directory / "data"), "--sync", sync)
    return launch(LaunchConfig(directory=directory, arguments=arguments))


def check(account: Account, there: list[int]) -> None:
    """Compare what was promised with what a queue had in the end."""
    missing = account.missing(set(there))
    assert not missing, f"{len(missing)} confirmed messages are lost: {sorted(missing)[:10]}"
    assert not account.undone, f"{len(account.undone)} confirmed acknowledgements were undone"
    assert there == sorted(there), "the order has changed"
    assert len(there) == len(set(there)), "messages are there twice"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_broker_that_is_killed_has_lost_nothing_that_it_confirmed(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    account = Account()
    for _ in range(KILLS):
        with started(tmp_path) as broker:
            load = Load(broker.port, account, chance)
            load.run(chance.uniform(0.0, LONGEST_ROUND_S))
            broker.kill()
            load.collect()
    assert len(account.promised) > KILLS, "hardly anything was sent"
    assert len(account.settled) > KILLS, "hardly anything was acknowledged"
    with started(tmp_path) as broker:
        check(account, drain(broker.port, account))


@pytest.fixture
def power(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have brokers started with a disk whose power can fail; gives the store's file."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler: apt-get install gcc libc6-dev")
    library = tmp_path / "power.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(POWER), "-ldl"]
    subprocess.run(command, check=True)
    path = tmp_path / "data" / "messages.lmdb" / "data.mdb"
    monkeypatch.setenv("STOMPKIT_POWER_FILE", str(path))
    monkeypatch.setenv("LD_PRELOAD", str(library))
    return path


def fail(power: Path) -> None:
    """Leave of the store what the disk had when the power failed."""
    durable = power.with_name("data.mdb.durable")
    assert durable.exists(), "the store was not written through the library"
    durable.replace(power)
    (power.parent / "lock.mdb").unlink()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_machine_that_loses_its_power_has_lost_nothing_that_was_confirmed(
    tmp_path: Path, power: Path, seed: int
) -> None:
    chance = random.Random(seed)
    account = Account()
    for _ in range(POWER_LOSSES):
        with started(tmp_path) as broker:
            load = Load(broker.port, account, chance)
            load.run(chance.uniform(0.0, LONGEST_ROUND_S))
            broker.kill()
            load.collect()
        fail(power)
    assert len(account.promised) > POWER_LOSSES, "hardly anything was sent"
    with started(tmp_path) as broker:
        check(account, drain(broker.port, account))


def test_without_syncing_the_power_takes_messages_along(tmp_path: Path, power: Path) -> None:
    """Show that the disk of these tests forgets what was not synced."""
    account = Account()
    with started(tmp_path, sync="never") as broker:
        load = Load(broker.port, account, random.Random(0))
        load.run(LONGEST_ROUND_S)
        broker.kill()
        load.collect()
    assert account.promised
    assert power.read_bytes() != power.with_name("data.mdb.durable").read_bytes()
