"""The content-types that a server sets itself, as 1.1 and 1.2 have them."""

import re

from stompkit.conformance import FailedError, Target, UnsupportedError, case
from stompkit.conformance.scenarios import provoke
from stompkit.frames import Frame

TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
MIME_TYPE = re.compile(rf'{TOKEN}/{TOKEN}(\s*;\s*{TOKEN}=({TOKEN}|"[^"]*"))*')


def typed_frames(target: Target, name: str) -> list[Frame]:
    """What the server sends of its own with a content-type: a MESSAGE and three kinds of ERROR.

    One of them is about a transaction of this name. Other cases judge whether these ERRORs come.
    Raises UnsupportedError where there is none.
    """
    peer = target.connect()
    queue = target.queue()
    target.subscribe(peer, queue)
    peer.send("SEND", {"destination": queue}, b"x")
    peer.expect("MESSAGE")
    peers = [peer]
    for command, headers in (("COMMIT", {"transaction": name}), ("SEND", {}), ("SUBSCRIBE", {})):
        peers.append(target.connect())
        provoke(target, peers[-1], command, headers)
    frames = [frame for each in peers for frame in each.frames if "content-type" in frame.headers]
    if not frames:
        raise UnsupportedError("the target sets no content-type")
    return frames


@case("1.1/content-type/mime", "1.2/content-type/mime")
def test_content_type_is_a_mime_type(target: Target) -> None:
    """Provoke MESSAGE and three kinds of ERROR; each content-type is a MIME type."""
    for frame in typed_frames(target, "unknown"):
        kind = frame.headers["content-type"]
        assert MIME_TYPE.fullmatch(kind), f"{frame.command} has the content-type {kind!r}"


@case("1.1/content-type/text-implies-utf8", "1.2/content-type/text-implies-utf8")
def test_text_is_utf8(target: Target) -> None:
    """Provoke ERRORs, then some about a name with accents; bodies of type text are UTF-8."""
    frames = typed_frames(target, "unknown")
    frames += typed_frames(target, "unknown \u00e9 \u20ac \U0001f600")
    for frame in frames:
        kind = frame.headers["content-type"].lower()
        if kind.startswith("text/") and "charset" not in kind:
            try:
                frame.body.decode()
            except UnicodeDecodeError as error:
                raise FailedError(f"{frame.command} is {kind}, but not UTF-8: {error}") from None
