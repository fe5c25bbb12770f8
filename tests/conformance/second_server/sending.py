"""Messages made of SEND frames."""

from __future__ import annotations

import html
import re
import unicodedata
from typing import Final
from urllib.parse import unquote_to_bytes

from tests.conformance.second_server.destinations import Message
from tests.conformance.second_server.frames import Headers
from tests.conformance.second_server.switches import Switch

#: Headers of SEND that are about the request, or that the server sets in MESSAGE.
_NOT_PASSED_ON: Final = (
    *(b"destination", b"receipt", b"transaction", b"content-length"),
    *(b"message-id", b"subscription", b"ack"),
)


def message_of(destination: bytes, headers: Headers, body: bytes, switch: Switch) -> Message | None:
    """Return the message that a SEND frame makes, if it makes one."""
    body = _body(body, switch)
    if b"transaction" in headers and switch.has("changes CR LF in bodies of transactions"):
        body = body.replace(b"\r\n", b"\n")
    if switch.has("drops empty bodies") and not body:
        return None
    kept = _passed_on(headers, switch)
    return Message(destination, {name: _value(kept[name], switch) for name in kept}, body)


def _body(body: bytes, switch: Switch) -> bytes:
    """Return a body as some switches change it."""
    has = switch.has
    if has("strips line feeds at the end of bodies"):
        body = body.rstrip(b"\n")
    if has("strips line feeds at the start of bodies"):
        body = body.lstrip(b"\n")
    if has("cuts bodies at 64 KiB"):
        body = body[:65_536]
    if has("drops byte order marks"):
        body = body.removeprefix(b"\xef\xbb\xbf")
    if has("takes the body 0 for none") and body == b"0":
        body = b""
    if has("unescapes bodies"):
        sequences = {rb"\n": b"\n", rb"\c": b":", rb"\\": b"\\"}
        body = re.sub(rb"\\[nc\\]", lambda found: sequences[found[0]], body)
    if has("changes markup in bodies"):
        body = html.unescape(body.decode("latin-1")).encode("latin-1", "replace")
    if has("changes CR LF in bodies"):
        body = body.replace(b"\r\n", b"\n")
    if has("damages bodies that are not UTF-8"):
        body = body.decode("utf-8", "replace").encode()
    return body


def _passed_on(headers: Headers, switch: Switch) -> Headers:
    """Return the headers that MESSAGE has from SEND."""
    has = switch.has
    kept = {n: v for n, v in headers.items() if n not in _NOT_PASSED_ON}
    for name in (b"message-id", b"subscription", b"ack"):
        if name in headers and has(f"lets the sender set {name.decode()}"):
            kept[name] = headers[name]
    if has("drops user headers in transactions") and b"transaction" in headers:
        kept = {}
    if has("drops the twenty-first header"):
        kept = dict(list(kept.items())[:20])
    if has("drops long values"):
        kept = {n: v for n, v in kept.items() if len(v) <= 1_000}
    if has("drops names with blanks"):
        kept = {n: v for n, v in kept.items() if b" " not in n}
    if has("drops empty values"):
        kept = {n: v for n, v in kept.items() if v}
    if has("drops the content-type"):
        kept.pop(b"content-type", None)
    if has("drops names that start with underscores"):
        kept = {n: v for n, v in kept.items() if not n.startswith(b"_")}
    if has("replaces signs in names"):
        own = (b"content-type",)
        kept = {n if n in own else re.sub(rb"\W", b"_", n): v for n, v in kept.items()}
    return kept


def _value(value: bytes, switch: Switch) -> bytes:
    """Return a value of a user header as some switches change it."""
    has = switch.has
    if has("normalises numbers in values") and re.fullmatch(rb"[0-9]+(\.[0-9]+)?", value):
        return b"%g" % float(value)
    if has("decodes percent signs in values"):
        return unquote_to_bytes(value)
    if has("drops quotes around values"):
        return re.sub(rb'^"(.*)"$', rb"\1", value)
    if has("combines accents in values"):
        return unicodedata.normalize("NFC", value.decode()).encode()
    if has("lowers values"):
        return value.lower()
    return value


def changed_receipt(receipt: bytes, switch: Switch) -> bytes:
    """Return a receipt as some switches change it."""
    has = switch.has
    if has("lowers receipts"):
        return receipt.lower()
    if has("decodes percent signs in receipts"):
        return unquote_to_bytes(receipt)
    if has("drops quotes around receipts"):
        return re.sub(rb'^"(.*)"$', rb"\1", receipt)
    if has("normalises numbers in receipts") and re.fullmatch(rb"[0-9]+(\.[0-9]+)?", receipt):
        return b"%g" % float(receipt)
    return receipt
