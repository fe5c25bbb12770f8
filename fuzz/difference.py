"""Fuzzing by difference: the decoder of frames beside others that read the same octets.

    python -m fuzz.difference --frames 10000000 --seed 1
    python -m fuzz.difference --frames 100000 --seed 1 --peers stomp.py,stompjs
    python -m fuzz.difference --table

Frames are drawn by chance, most of them valid, and read with ``stompkit.frames``, with a reference
decoder that is written from the BNF of the specifications, and with the peers: stomp.py, and
stomp.js in Node.js, which npm gets from its registry. Each disagreement is put into one of the
classes of docs/explanation/fuzzing.rst. One that fits none is printed, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from time import process_time
from typing import Final, NamedTuple

import stompkit.frames._decoder
from fuzz._disagreements import CLASSES, Difference, classify, compare, table
from fuzz._drawing import draw
from fuzz._peers import PEERS, Peer, Stream, read_stompkit, stomp_py, stompjs
from fuzz._reference import decode

__all__ = ["Report", "differ", "main"]

#: Number of streams that a peer gets at a time.
_BATCH: Final = 1_000
#: Number of unclassified disagreements that are printed.
_SHOWN: Final = 10


class Report(NamedTuple):
    """Results of a run."""

    frames: int
    streams: int
    octets: int
    #: Number of drawn frames that the reference has read.
    read: int
    #: Number of disagreements by name of the peer and class.
    classes: Counter[tuple[str, str]]
    unclassified: list[Difference]


def differ(frames: int, seed: int, peers: dict[str, Peer]) -> Report:
    """Draw at least *frames* frames, and compare the results of the decoders."""
    classes: Counter[tuple[str, str]] = Counter()
    unclassified: list[Difference] = []
    drawn = streams = octets = read = 0
    for count, batch in _batches(frames, seed):
        drawn += count
        streams += len(batch)
        octets += sum(len(stream.octets) for stream in batch)
        references = [decode(stream.octets, stream.version) for stream in batch]
        read += sum(len(reference.frames) for reference in references)
        outcomes = {"stompkit": [read_stompkit(stream) for stream in batch]}
        outcomes |= {name: peer(batch) for name, peer in peers.items()}
        for name, seen in outcomes.items():
            for stream, reference, outcome in zip(batch, references, seen, strict=True):
                difference = compare(name, stream, reference, outcome)
                if difference is None:
                    continue
                kind = classify(difference)
                if kind is None:
                    unclassified.append(difference)
                else:
                    classes[name, kind] += 1
        if len(unclassified) >= _SHOWN:
            break
    return Report(drawn, streams, octets, read, classes, unclassified)


def _batches(frames: int, seed: int) -> Iterator[tuple[int, list[Stream]]]:
    drawing = draw(seed)
    while frames > 0:
        pairs = list(islice(drawing, min(_BATCH, frames)))
        count = sum(count for _, count in pairs)
        frames -= count
        yield count, [stream for stream, _ in pairs]


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and compare decoders; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m fuzz.difference", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--frames", type=int, default=100_000, help="frames to draw (100000)")
    parser.add_argument("--seed", type=int, default=1, help="begins the numbers of chance (1)")
    parser.add_argument(
        "--peers",
        default="reference",
        help=f"whom to compare with, with commas: {', '.join(PEERS)}; the reference always is",
    )
    parser.add_argument("--table", action="store_true", help="print the table of the classes")
    given = parser.parse_args(arguments)
    if given.table:
        print(table())
        return 0
    names = [name for name in given.peers.split(",") if name != "reference"]
    for name in names:
        if name not in PEERS:
            parser.error(f"there is no peer {name}: there are {', '.join(PEERS)}")
    with ExitStack() as stack:
        peers: dict[str, Peer] = {}
        if "stomp.py" in names:
            peers["stomp.py"] = stomp_py
        if "stompjs" in names:
            # The tests of other clients install it, by their lock file.
            from tests.integration.clients.driver import LIBRARIES, LibraryMissing

            folder = stack.enter_context(tempfile.TemporaryDirectory())
            try:
                command = LIBRARIES["stomp.js"].install(Path(folder))
            except LibraryMissing as error:
                parser.error(str(error))
            peers["stompjs"] = stack.enter_context(stompjs(command))
        report = differ(given.frames, given.seed, peers)
    _show(report, ["stompkit", *peers])
    return 1 if report.unclassified else 0


def _show(report: Report, names: Sequence[str]) -> None:
    is_pure = stompkit.frames._decoder.__file__.endswith(".py")
    print(
        f"{report.frames:,} frames in {report.streams:,} streams, {report.octets:,} octets;"
        f" the reference has read {report.read:,} of them; stompkit.frames is"
        f" {'Python' if is_pure else 'compiled'}; {process_time():,.0f} s of the processor"
    )
    print(f"{'':<30}" + "".join(f"{name:>12}" for name in names))
    for kind in CLASSES:
        counts = [report.classes[name, kind] for name in names]
        if any(counts):
            print(f"{kind:<30}" + "".join(f"{count:>12,}" for count in counts))
    for difference in report.unclassified[:_SHOWN]:
        print(f"\nNot in any class: {difference.peer}, {difference.stream}")
        print(f"  reference: {difference.expected} {difference.expected_end}")
        print(f"  {difference.peer}: {difference.seen} {difference.seen_end}", file=sys.stdout)


if __name__ == "__main__":
    sys.exit(main())
