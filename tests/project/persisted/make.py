"""Write what a version of stompkit persists: a store, a spool, a replica, offsets of a publisher.

``python -m tests.project.persisted.make FILE.zip`` does this with the imported version of stompkit,
so that later versions can be tested on the archive. The archives in this folder have released or
earlier layouts and are never regenerated.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stompkit.replication.sources.offsets import Checkpoint, FileOffsets
from stompkit.spool import Record, SpoolWriter
from stompkit.testing.client import StompClient
from stompkit.testing.launching.polling import wait_until

__all__ = ["CHECKPOINT", "RECORDS", "serving", "stompkit"]

#: Time in seconds within which a broker has to start on a busy machine.
_START_S = 60.0
CHECKPOINT = Checkpoint(
    origin="origin", sequence=7, position="0/1A2B3C", state={"tables": ["a"], "done": 3}
)
RECORDS = [
    Record(
        1_700_000_000_000_000 + number,
        "/queue/a",
        f"m-{number}",
        f"e-{number}",
        "text/plain",
        (("x", "ä"), ("n", str(number))),
        b"body %d" % number,
    )
    for number in range(20)
]


def stompkit(*arguments: str) -> str:
    """Run a command and return its output."""
    command = [sys.executable, "-m", "stompkit", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@contextmanager
def serving(data: Path) -> Iterator[tuple[str, int]]:
    """Serve a directory of data, and yield host and port."""
    announce = data.with_name("announce.json")
    announce.unlink(missing_ok=True)
    options = ("--data", data, "--endpoint", "tcp:0:interface=127.0.0.1", "--announce", announce)
    command = [sys.executable, "-m", "stompkit", "serve", *map(str, options)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: announce.exists() or process.poll() is not None, _START_S)
            assert announce.exists(), "the broker has not started"
            [endpoint] = json.loads(announce.read_text(encoding="utf-8"))["endpoints"]
            yield endpoint["host"], endpoint["port"]
        finally:
            process.terminate()
            process.wait()


def _write_store(data: Path) -> None:
    with serving(data) as (host, port):
        with StompClient.connect(host, port, headers={"client-id": "c"}) as client:
            client.subscribe("/topic/t", id="d", durable="true")
        with StompClient.connect(host, port) as client:
            for number in range(5):
                client.send("/queue/a", b"body %d" % number, persistent="true", n=str(number))
            client.send("/topic/t", b"to a durable subscription", persistent="true")
            client.subscribe("/queue/a", id="s", ack="client-individual")
            first, second = client.receive(), client.receive()
            client.ack(first)
            client.nack(second)


def _write_spool(folder: Path) -> None:
    with SpoolWriter(folder, partitions=2) as spool:
        spool.append(RECORDS)


def _write_replica(database: Path) -> None:
    url = f"sqlite:///{database}"
    stompkit("replica", "create", "--db", url, "--branch-id", "anna")
    for name in ("milk", "tea"):
        stompkit("replica", "put", "notes", name, f'{{"text": "{name}", "n": 1}}', "--db", url)
    stompkit("replica", "delete", "notes", "tea", "--db", url)


def main(path: Path) -> None:
    """Write the archive."""
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory) / "persisted"
        folder.mkdir()
        _write_store(folder / "store")
        (folder / "announce.json").unlink(missing_ok=True)
        _write_spool(folder / "spool")
        _write_replica(folder / "replica.sqlite")
        FileOffsets(folder / "offsets.json").store(CHECKPOINT)
        shutil.make_archive(str(path.with_suffix("")), "zip", folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
