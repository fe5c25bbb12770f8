"""The configuration file of the broker: the result is settings, or all errors in the file."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from fuzz._driver import main
from stompkit.server.settings.reading import SettingsError, parse_settings
from stompkit.server.settings.text import settings_text

__all__ = ["SEEDS", "check"]

_EXAMPLE: Final = Path(__file__).parents[1] / "docs" / "examples" / "stompkit.toml"
_NAME: Final = "stompkit.toml"

SEEDS: Final = (
    _EXAMPLE.read_bytes(),
    b'[broker]\nheart_beat_ms = [0, 10_000]\nwhen_full = "block"\nhosts = ["a", "b"]\n'
    b'tolerance = ["crlf", "raw-colon"]\n[broker.limits]\nmax_headers = 10\n',
    b'[[destination]]\nname = "/queue/a.>"\nnack = "discard"\n[[destination]]\n'
    b'name = "/fanout/f"\nchildren = [\n  "/queue/x",\n  "/queue/y",\n]\nprefetch = 1\n',
    b'[store]\npath = "/var/lib/stompkit"\nsync = "interval:200"\nmax_octets = 1_048_576\n',
    b'[[listen]]\nendpoint = "haproxy:tcp:61613"\nproxies = ["10.0.0.0/8", "::1"]\n[[listen]]\n'
    b'endpoint = "unix:/run/x.sock"\n[[websocket]]\nendpoint = "tcp:15674"\npath = "/ws"\n'
    b'allow_origins = ["https://a.example"]\n',
    b'[auth]\nanonymous = true\ncertificate_users = true\n[auth.groups]\nstaff = ["ann", "bob"]\n'
    b'[[rights]]\nusers = ["ann"]\ndestination = "/queue/>"\nread = true\n',
    b'[auth.http]\nurl = "http://127.0.0.1:8080/auth"\n[log]\nformat = "json"\nframes = true\n',
    b'[admin]\nendpoints = ["tcp:15613:interface=127.0.0.1"]\nhosts = ["a.example"]\n[beanstalk]\n'
    b'endpoints = ["tcp:11300:interface=127.0.0.1"]\ntubes = ["a.>"]\n',
    b"[broker]\nprefetch = nan\nlogin_timeout_s = 1e400\nmax_headers = 1979-05-27T07:32:00Z\n"
    b'[broker.limits]\nmax_frame_bytes = -1\n["x"."y z"]\na = {b = [1, {c = 2}]}\n',
)


def check(data: bytes) -> None:
    """Read a file; write the settings as a file, and check that it gives the same settings."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return  # an earlier check reports this
    try:
        found = parse_settings(text, _NAME)
    except SettingsError as error:
        assert error.problems
        assert all(problem.startswith(_NAME) for problem in error.problems), error.problems
        return
    written = settings_text(found)
    assert parse_settings(written, _NAME) == found, written
    assert found.descriptions and found.config


if __name__ == "__main__":
    main(__file__)
