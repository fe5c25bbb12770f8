"""Sans-I/O codecs for STOMP 1.0, 1.1 and 1.2: bytes to frames and back, and session states.

The package uses only the standard library, and neither sockets nor clocks. It therefore serves any
program that speaks STOMP, with any kind of input and output.
"""

from stompkit.frames._commands import COMMANDS, Command, Role
from stompkit.frames._decoder import FrameDecoder
from stompkit.frames._encoder import encode
from stompkit.frames._errors import LocalProtocolError, ProtocolError, RemoteProtocolError, refusal
from stompkit.frames._escapes import escape, unescape
from stompkit.frames._frame import Frame
from stompkit.frames._grammar import (
    AFTER_LOGIN,
    BEFORE_LOGIN,
    VERSIONS,
    Limits,
    Tolerance,
    Version,
)
from stompkit.frames._heartbeat import HeartBeat, HeartBeatOffer, parse_heart_beat
from stompkit.frames._numbers import parse_number
from stompkit.frames._session import Session
from stompkit.frames._shape import Shape
from stompkit.frames._states import TRANSITIONS, State

__all__ = [
    "AFTER_LOGIN",
    "BEFORE_LOGIN",
    "COMMANDS",
    "TRANSITIONS",
    "VERSIONS",
    "Command",
    "Frame",
    "FrameDecoder",
    "HeartBeat",
    "HeartBeatOffer",
    "Limits",
    "LocalProtocolError",
    "ProtocolError",
    "RemoteProtocolError",
    "Role",
    "Session",
    "Shape",
    "State",
    "Tolerance",
    "Version",
    "encode",
    "escape",
    "parse_heart_beat",
    "parse_number",
    "refusal",
    "unescape",
]
