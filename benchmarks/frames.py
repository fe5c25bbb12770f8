"""Measurements of the speed of encoding and decoding, for stompkit and other Python libraries.

All libraries get the same bytes in the same chunks, through the function that their transports use.
The program first checks the result of each library. A library with a wrong result has no figure
but the reason. In each round all libraries are measured, in a rotating order. The figures are the
median, minimum and maximum of the CPU time per frame, with the garbage collector disabled. Compare
only figures of one run. To measure the effect of a change::

    python benchmarks/frames.py --rounds 5 --shape many --shape split

A body of 1 MiB is decoded in chunks of 64 KiB; encoding has no chunks. The libraries differ:

* stomp.py is measured with the loop of its transport. The chunks replace a socket, and
  ``process_frame`` only counts.
* stomper supports STOMP 1.1; the others are used with 1.2. It needs LF after NUL and works on text,
  so bytes are decoded and encoded for it.
* coilmq has no escapes and does not accept a chunk that ends within the headers of a frame.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import platform
import sys
import time
from collections import deque
from collections.abc import Callable
from importlib.metadata import version
from operator import attrgetter, itemgetter
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

from stompkit import __version__
from stompkit.frames import Frame, FrameDecoder, encode

TITLE: Final = "Benchmarks of encoding and decoding"

Parts = tuple[str, dict[str, str], bytes]  # command, headers, body
#: Reads chunks, appends the library's frames to the deque and returns their number.
Decode = Callable[[list[bytes], deque[Any]], int]
#: Appends frames or bytes to the deque and returns their number; splits one of them.
Job = tuple[Callable[[deque[Any]], int], Callable[[Any], Parts]]
Row = dict[str, Any]


class Shape(NamedTuple):
    """Frames of one kind, and their division into chunks."""

    title: str
    body_bytes: int = 100
    frames: int = 1_000
    headers: int = 0  # at least; fillers are added up to this number
    extra: tuple[tuple[str, str], ...] = ()
    frames_per_chunk: int = 1
    chunk_bytes: int = 0  # set if chunks do not end with a frame

    def parts(self, command: str, number: int) -> Parts:
        """Return the parts of one frame."""
        headers = {"content-length": str(self.body_bytes), "destination": "/queue/orders"}
        if command == "MESSAGE":
            headers |= {"message-id": str(number), "subscription": "0"}
        headers |= dict(self.extra)
        headers |= {f"property-{n}": f"value {n}" for n in range(self.headers - len(headers))}
        return command, headers, b"x" * self.body_bytes

    def chunks(self, frames: list[bytes]) -> list[bytes]:
        """Return the stream of ``frames`` in chunks."""
        data, size, step = b"".join(frames), self.chunk_bytes, self.frames_per_chunk
        if size:
            return [data[at : at + size] for at in range(0, len(data), size)]
        return [b"".join(frames[at : at + step]) for at in range(0, len(frames), step)]


_ESCAPED = (("link", "https://example.org:8443/1"), ("file", "C:\\in"), ("note", "one\ntwo"))
SHAPES: Final = {
    "body-100": Shape("100-byte body"),
    "body-1k": Shape("1 KiB body", 1_024),
    "headers-20": Shape("20 headers", headers=20),
    "escaped": Shape("3 escaped headers", extra=_ESCAPED),
    "body-1m": Shape("1 MiB body", 1 << 20, frames=16, chunk_bytes=1 << 16),
    "many": Shape("500 frames per chunk", frames_per_chunk=500),
    "flood": Shape("20,000 frames, 1 chunk", frames=20_000, frames_per_chunk=20_000),
    "split": Shape("64-byte chunks", chunk_bytes=64),
}
_parts: Final = attrgetter("command", "headers", "body")


class Library(NamedTuple):
    """A library behind the common interface of the measurement."""

    decode: Decode
    parts: Callable[[Any], Parts]
    encode: Callable[[str, dict[str, str], bytes], bytes]
    after_nul: bytes = b""  # required separator between frames


def ours() -> Library:
    def decode(chunks: list[bytes], sink: deque[Any]) -> int:
        feed, count = FrameDecoder("1.2").feed, 0
        for chunk in chunks:
            sink.extend(frames := feed(chunk))
            count += len(frames)
        return count

    return Library(decode, _parts, lambda *made: encode(Frame(*made), "1.2"))


def stomp_py() -> Library:
    os.environ.setdefault("STOMP_SKIP_HOSTNAME_SCAN", "1")  # otherwise importing it queries the DNS
    from stomp.protocol import Protocol12
    from stomp.transport import BaseTransport

    def decode(chunks: list[bytes], sink: deque[Any]) -> int:
        def process_frame(frame: Any, _octets: bytes) -> None:
            sink.append(frame)
            next(count)

        count, pieces, transport = itertools.count(), iter(chunks), BaseTransport(auto_decode=False)
        transport.receive, transport.process_frame = lambda: next(pieces, b""), process_frame
        transport.override_threading(lambda loop: loop())
        transport.start()  # returns at the end of the stream
        return next(count)

    def write(command: str, headers: dict[str, str], body: bytes) -> bytes:
        protocol.send_frame(command, dict(headers), body)  # a copy, since it escapes in place
        return sent[0]

    sent: deque[bytes] = deque(maxlen=1)
    protocol = Protocol12(BaseTransport())
    protocol.transport.send = sent.append
    return Library(decode, attrgetter("cmd", "headers", "body"), write)


def pulled(make: Callable[[], Any], put: str, get: str, convert: Any = bytes) -> Decode:
    """Return a decoder for a parser with a method for a chunk and one for a frame or None."""

    def decode(chunks: list[bytes], sink: deque[Any]) -> int:
        (add, pull), count = attrgetter(put, get)(make()), 0
        for chunk in chunks:
            add(convert(chunk))
            while (frame := pull()) is not None:
                sink.append(frame)
                count += 1
        return count

    return decode


def stompest() -> Library:
    from stompest.protocol import StompFrame, StompParser

    decode = pulled(lambda: StompParser("1.2"), "add", "get")
    return Library(decode, _parts, lambda *made: bytes(StompFrame(*made, version="1.2")))


def stomper() -> Library:
    from stomper import Frame
    from stomper.stompbuffer import StompBuffer

    def write(command: str, headers: dict[str, str], body: bytes) -> bytes:
        frame = Frame()
        frame.cmd, frame.headers, frame.body = command, headers, body.decode()
        return bytes(frame.pack(), "utf-8")

    def parts(frame: Any) -> Parts:
        return frame["cmd"], frame["headers"], frame["body"].encode()

    decode = pulled(StompBuffer, "appendData", "getOneMessage", bytes.decode)
    return Library(decode, parts, write, b"\n")


def coilmq() -> Library:
    from coilmq.util.frames import Frame, FrameBuffer

    decode = pulled(FrameBuffer, "append", "extract_frame")
    return Library(decode, attrgetter("cmd", "headers", "body"), lambda *made: Frame(*made).pack())


#: By the names on PyPI.
_PEERS: Final = {"stomp.py": stomp_py, "stompest": stompest, "stomper": stomper, "coilmq": coilmq}


def job(library: Library, operation: str, shape: Shape, made: list[Parts]) -> Job:
    def write(sink: deque[Any]) -> int:
        sink.extend(itertools.starmap(library.encode, made))
        return len(made)

    if operation == "Writing":
        return write, lambda octets: _parts(FrameDecoder("1.2").feed(octets)[0])
    chunks = shape.chunks([encode(Frame(*one), "1.2") + library.after_nul for one in made])
    return lambda sink: library.decode(chunks, sink), library.parts


def fault(job: Job, made: list[Parts]) -> str | None:
    """Return the reason why a library has no figure; None if every frame is right."""
    try:
        job[0](sink := deque[Any]())
        got = list(map(job[1], sink))
    except Exception as error:
        return f"fails: {error!r}"
    for theirs, right in zip(got, made, strict=False):
        for name, value in right[1].items():
            if theirs[1].get(name) != value:
                return f"wrong: {name} is {theirs[1].get(name)!a}, not {value!a}"
        if theirs != right:
            return "wrong: command, body or a header too many"
    return None if len(got) == len(made) else f"wrong: {len(got)} frames of {len(made)}"


def measured(libraries: dict[str, Library], case: tuple[str, str, str], rounds: int) -> list[Row]:
    """Check and measure all libraries in one case: operation, command, shape."""
    shape = SHAPES[case[2]]
    made = [shape.parts(case[1], number) for number in range(shape.frames)]
    jobs = {name: job(library, case[0], shape, made) for name, library in libraries.items()}
    faults = {name: fault(job, made) for name, job in jobs.items()}
    assert not faults["stompkit"], faults["stompkit"]
    times_us: dict[str, list[float]] = {name: [] for name in jobs if not faults[name]}
    gc.collect()
    gc.disable()
    for turn in range(rounds):
        (order := deque(times_us)).rotate(turn)
        for name in order:
            start = time.process_time()
            count = jobs[name][0](deque(maxlen=1))
            times_us[name].append((time.process_time() - start) / count * 1e6)
            assert count == shape.frames, f"{name}: {count} frames of {shape.frames}"
    gc.enable()
    own = times_us["stompkit"]
    return [row((*case, name, faults[name]), times_us.get(name, []), own) for name in jobs]


def row(about: tuple[str | None, ...], times_us: list[float], own_us: list[float]) -> Row:
    made = dict(zip(("operation", "command", "shape", "library", "fault"), about, strict=True))
    us = median(times_us) if times_us else None
    extremes = {"min_us": min(times_us, default=None), "max_us": max(times_us, default=None)}
    rates = {"frames_per_s": us and 1e6 / us, "times_as_slow": us and us / median(own_us)}
    return {**made, "median_us": us, **extremes, **rates}


def line(row: Row) -> str:
    """Return a row of a csv-table."""
    form = "{median_us:.2f} ({min_us:.2f}-{max_us:.2f}) | {frames_per_s:,.0f} | {times_as_slow:.2f}"
    figures = f"``{row['fault']}`` | |" if row["fault"] else form.format(**row)
    return f"   {row['library']:8} | {SHAPES[row['shape']].title:20} | {figures}"


def report(made: dict[str, Any]) -> str:
    """Return the tables in reStructuredText, with the explanations for readers."""
    text = [TITLE, "=" * len(TITLE), "", str(__doc__)]
    text += ["Made by ``{command}`` with {python} on {cores} cores.".format(**made)]
    text += [f"{name} {number}." for name, number in made["versions"].items()]
    text += [f"{name} is missing: ``pip install {name}``." for name in made["missing"]]
    for table, rows in itertools.groupby(made["rows"], itemgetter("operation", "command")):
        text += ["", f".. csv-table:: {' '.join(table)}", "   :delim: |", "   :header-rows: 1", ""]
        text += ["   Library | Frames | Microseconds (min-max) | Frames/s | Times as slow"]
        text += map(line, rows)
    return "\n".join(text) + "\n"


def run(rounds: int, shapes: list[str]) -> dict[str, Any]:
    """Load the installed libraries and measure every case."""
    libraries, versions = {"stompkit": ours()}, {"stompkit": __version__}
    for name, load in _PEERS.items():
        try:
            libraries[name], versions[name] = load(), version(name)
        except Exception as error:  # an old library on a new Python may raise anything
            print(f"{name} is missing ({error!r}): pip install {name}", file=sys.stderr)
    cases = list(itertools.product(("Reading", "Writing"), ("SEND", "MESSAGE"), shapes))
    cases = [case for case in cases if case[0] == "Reading" or case[2] not in ("many", "split")]
    rows = []
    for number, case in enumerate(cases, 1):
        print(f"[{number}/{len(cases)}]", *case, file=sys.stderr)
        rows += measured(libraries, case, rounds)
    return {"versions": versions, "missing": sorted(_PEERS.keys() - versions.keys()), "rows": rows}


def main() -> None:
    """Read the command line, measure and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--rounds", type=int, default=15, help="of each case (default: 15)")
    parser.add_argument("--shape", action="append", choices=SHAPES, help="only this one, or these")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to FILE")
    parser.add_argument("--rst", type=Path, metavar="FILE", help="write the tables to FILE")
    given = parser.parse_args()
    if given.rounds < 1:
        parser.error("--rounds must be 1 or more")
    python = f"{platform.python_implementation()} {platform.python_version()}"
    made = run(given.rounds, given.shape or list(SHAPES))
    made |= {"python": python, "cores": os.cpu_count()}
    made["command"] = f"python benchmarks/frames.py --rounds {given.rounds}"
    made["command"] += "".join(f" --shape {name}" for name in given.shape or ())
    print(report(made))
    for path, text in ((given.json, json.dumps(made, indent=1) + "\n"), (given.rst, report(made))):
        if path:
            path.write_text(text)


if __name__ == "__main__":
    main()
