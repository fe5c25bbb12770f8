"""Servers of other protocols, or with severe faults."""

from __future__ import annotations

import random
from http.server import BaseHTTPRequestHandler

from tests.conformance.scripted import Line, connected, connected_frame, frame

GARBAGE = random.Random(1).randbytes(10_000)


def silent(line: Line) -> None:
    line.wait()


def closes_at_once(line: Line) -> None:
    line.close()


def resets_at_once(line: Line) -> None:
    line.reset()


def says_garbage(line: Line) -> None:
    line.send(GARBAGE)
    line.wait()


def never_stops_garbage(line: Line) -> None:
    while True:
        line.send(GARBAGE)


def never_stops_line_ends(line: Line) -> None:
    while True:
        line.send(b"\n" * 10_000)


def never_stops_frames(line: Line) -> None:
    connected(line)
    while True:
        line.send(frame("RECEIPT", {"receipt-id": "not yours"}) * 1_000)


def never_stops_one_frame(line: Line) -> None:
    line.send(b"CONNECTED\nversion:1.2\n\n")
    while True:
        line.send(b"x" * 65_536)


def goes_silent_after_the_probe(line: Line) -> None:
    if line.number <= 3:
        connected(line)
    line.wait()


def goes_mad_after_connected(line: Line) -> None:
    connected(line)
    line.send(GARBAGE)
    line.wait()


def closes_after_connected(line: Line) -> None:
    connected(line)
    line.frame()


def closes_without_reading(line: Line) -> None:
    connected(line)


def promises_too_much(line: Line) -> None:
    line.send(b"CONNECTED\nversion:1.2\ncontent-length:99999999999999999999\n\n")
    line.wait()


def never_ends_its_frame(line: Line) -> None:
    line.send(b"CONNECTED\nversion:1.2\n")
    line.wait()


def is_not_utf8(line: Line) -> None:
    _, headers = line.frame()
    line.send(
        connected_frame(headers, server="x").replace(b"server:x", b"server:\xff\xc3(\xe2\x82")
    )
    receipts_from_here(line)


def receipts_from_here(line: Line) -> None:
    for _, headers in line.frames():
        if "receipt" in headers:
            line.send(frame("RECEIPT", {"receipt-id": headers["receipt"]}))


def attacks_the_terminal(line: Line) -> None:
    connected(line, server="\x1b[2J\x9b31m evil \u202e\r")
    receipts_from_here(line)


def drips(line: Line) -> None:
    _, headers = line.frame()
    for octet in connected_frame(headers):
        line.send(bytes([octet]))
    for _, headers in line.frames():
        if "receipt" in headers:
            for octet in frame("RECEIPT", {"receipt-id": headers["receipt"]}):
                line.send(bytes([octet]))


def refuses_everybody(line: Line) -> None:
    line.frame()
    line.send(frame("ERROR", {"message": "go away"}, b"and do not come back"))


def speaks_of_the_future(line: Line) -> None:
    line.frame()
    line.send(frame("CONNECTED", {"version": "2.0"}))
    line.wait()


def answers_with_empty_frames(line: Line) -> None:
    connected(line)
    for _ in line.frames():
        for command in ("RECEIPT", "MESSAGE", "CONNECTED"):
            line.send(frame(command, {}))


def answers_with_errors(line: Line) -> None:
    connected(line)
    for _ in line.frames():
        line.send(frame("ERROR", {}))


def reads_nothing_more(line: Line) -> None:
    connected(line)
    line.hold()


class Http(BaseHTTPRequestHandler):
    """A web server that logs nothing to stderr."""

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing."""
