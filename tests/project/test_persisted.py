"""Reading what earlier versions have persisted: stores, spools, replicas and offsets."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from stompkit.replication.sources.offsets import FileOffsets
from stompkit.spool import SpoolReader
from stompkit.testing.client import StompClient
from tests.project.persisted.make import CHECKPOINT, RECORDS, serving, stompkit

ARCHIVES = sorted((Path(__file__).parent / "persisted").glob("*.zip"))


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.stem)
def persisted(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The folder with the data of one version."""
    shutil.unpack_archive(request.param, tmp_path / "persisted")
    return tmp_path / "persisted"


def test_a_store_is_read(persisted: Path) -> None:
    with serving(persisted / "store") as (host, port):
        with StompClient.connect(host, port) as client:
            client.subscribe("/queue/a", id="s")
            found = [client.receive() for _ in range(4)]
            assert [each.body for each in found] == [b"body %d" % n for n in (1, 2, 3, 4)]
            assert [each.headers["n"] for each in found] == ["1", "2", "3", "4"]
            client.receive_nothing()
        with StompClient.connect(host, port, headers={"client-id": "c"}) as client:
            client.subscribe("/topic/t", id="d", durable="true")
            assert client.receive().body == b"to a durable subscription"


def test_a_spool_is_read(persisted: Path) -> None:
    reader = SpoolReader(persisted / "spool")
    heads = reader.head()
    assert len(heads) == 2
    blocks = [block for part, head in enumerate(heads) for block in reader.blocks(part, 0, head)]
    found = [record for block in blocks for record in block.records()]
    assert sorted(found) == sorted(RECORDS)


def test_a_replica_is_read(persisted: Path) -> None:
    url = f"sqlite:///{persisted / 'replica.sqlite'}"
    milk = stompkit("replica", "get", "notes", "milk", "--db", url)
    assert json.loads(milk) == {"text": "milk", "n": 1}
    assert stompkit("replica", "log", "--db", url).count("anna") >= 3
    assert "tea" not in stompkit("replica", "get", "notes", "--db", url)


def test_offsets_of_a_publisher_are_read(persisted: Path) -> None:
    assert FileOffsets(persisted / "offsets.json").load() == CHECKPOINT
