"""MySQL's character sets: Python decodes those of Unicode, the server all others.

For some of the older sets, Python and MySQL map codes differently to Unicode, and Python lacks
other sets. The server is asked once for all codes of a set, so that text of the log equals that
of a query.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Mapping
from functools import cache
from itertools import product
from typing import Any, Final

from pymysql.connections import Connection

from stompkit.replication.model.values import Value

__all__ = ["Ask", "Decode", "collations", "decoder", "decoders", "is_told_by_server", "unreadable"]

#: Decoder of text. Bytes that are invalid in the character set stay bytes.
Decode = Callable[[bytes], Value]
#: Function by which the server converts bytes from a character set to Unicode.
Ask = Callable[[bytes, str], str]

_CODECS: Final = {
    "ascii": "ascii",
    "gb18030": "gb18030",
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "utf8": "utf-8",
    "utf8mb3": "utf-8",
    "utf8mb4": "utf-8",
}


def _octets(*ranges: tuple[int, int]) -> bytes:
    return bytes(octet for first, last in ranges for octet in range(first, last + 1))


_HIGH: Final = _octets((0xA1, 0xFE))
_SJIS: Final = (_octets((0x81, 0x9F), (0xE0, 0xFC)), _octets((0x40, 0x7E), (0x80, 0xFC)))
_EUC_JP: Final = ((_HIGH, _HIGH), (b"\x8e", _octets((0xA1, 0xDF))), (b"\x8f", _HIGH, _HIGH))
#: For sets with multi-byte codes: the possible bytes by their places.
_LONG_CODES: Final[Mapping[str, tuple[tuple[bytes, ...], ...]]] = {
    "big5": ((_octets((0xA1, 0xF9)), _octets((0x40, 0x7E), (0xA1, 0xFE))),),
    "cp932": (_SJIS,),
    "eucjpms": _EUC_JP,
    "euckr": ((_octets((0x81, 0xFE)), _octets((0x41, 0x5A), (0x61, 0x7A), (0x81, 0xFE))),),
    "gb2312": ((_octets((0xA1, 0xF7)), _HIGH),),
    "gbk": ((_octets((0x81, 0xFE)), _octets((0x40, 0x7E), (0x80, 0xFE))),),
    "sjis": (_SJIS,),
    "ujis": _EUC_JP,
}
_ASCII: Final = bytes(range(128))
#: Results of the server for codes without a character.
_NO_CHARACTER: Final = ("?", "\0", "")


def _latin1_table() -> str:
    """Return MySQL's latin1: Windows-1252, with its five undefined bytes unchanged."""
    found = (codecs.decode(bytes([octet]), "cp1252", "replace") for octet in range(256))
    return "".join(
        chr(octet) if character == "\ufffd" else character for octet, character in enumerate(found)
    )


_LATIN1: Final = _latin1_table()


def _latin1(octets: bytes) -> Value:
    return codecs.charmap_decode(octets, "strict", _LATIN1)[0]


def is_told_by_server(charset: str) -> bool:
    """Return True if the server is asked for the codes of a character set."""
    return charset not in _CODECS and charset not in ("", "binary", "latin1")


def unreadable(longest: Mapping[str, int]) -> frozenset[str]:
    """Return the names of character sets whose text cannot be decoded.

    ``longest`` has the maximum number of bytes of a code of each set.
    """
    return frozenset(
        name
        for name, octets in longest.items()
        if octets > 1 and name not in _LONG_CODES and name not in _CODECS
    )


def decoder(charset: str, ask: Ask) -> Decode:
    """Return the decoder of a character set; raises ``ValueError`` for an unknown one."""
    if charset == "latin1":
        return _latin1
    codec = _CODECS.get(charset)
    if codec:
        return lambda octets: _by_codec(octets, codec)
    return _Table(charset, ask)


def _by_codec(octets: bytes, codec: str) -> Value:
    try:
        return str(octets, codec)
    except UnicodeDecodeError:
        return octets


class _Table:
    """Decodes a character set by the server's answers for each code."""

    def __init__(self, charset: str, ask: Ask) -> None:
        """Query the server at the first text that is not plain ASCII."""
        self._charset = charset
        self._ask = ask
        self._characters: dict[bytes, str] = {}
        self._lengths = [1] * 256
        self._is_ascii = False

    def __call__(self, octets: bytes) -> Value:
        """Return the text, or the bytes if they are invalid."""
        if not self._characters:
            self._fill()
        if self._is_ascii and octets.isascii():
            return octets.decode("ascii")
        lengths, characters = self._lengths, self._characters
        found = []
        at = 0
        while at < len(octets):
            end = at + lengths[octets[at]]
            character = characters.get(octets[at:end])
            if character is None:
                return octets
            found.append(character)
            at = end
        return "".join(found)

    def _fill(self) -> None:
        single = [bytes((octet,)) for octet in range(256)]
        long = _LONG_CODES.get(self._charset, ())
        for places in long:
            for lead in places[0]:
                self._lengths[lead] = len(places)
        single = [code for code in single if self._lengths[code[0]] == 1]
        # In sets with longer codes, other single bytes may not be characters.
        plain = [code for code in single if not long or code[0] < 0x80 or self._has_kana(code)]
        self._learn(plain, b"")
        codes = [bytes(code) for places in long for code in product(*places)]
        if codes:
            self._learn(codes, b"\n")
        # A question mark is also a character itself.
        self._characters.setdefault(b"?", "?")
        self._is_ascii = all(
            self._characters.get(bytes((octet,))) == chr(octet) for octet in _ASCII if octet
        )

    def _has_kana(self, code: bytes) -> bool:
        return self._charset in ("sjis", "cp932") and 0xA1 <= code[0] <= 0xDF

    def _learn(self, codes: list[bytes], separator: bytes) -> None:
        answer = self._ask(separator.join(codes), self._charset)
        texts = answer.split("\n") if separator else list(answer)
        if len(texts) != len(codes):
            raise ValueError(
                f"text in the character set {self._charset} cannot be read: convert it"
            )
        for code, text in zip(codes, texts, strict=True):
            if text not in _NO_CHARACTER or code == text.encode():
                self._characters[code] = text


def collations(connection: Connection[Any]) -> Mapping[int, str]:
    """Return the character sets of a server's collations by their numbers."""
    found: dict[int, str] = {}
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT COUNT(*) FROM INFORMATION_SCHEMA.COLUMNS WHERE TABLE_SCHEMA="
            "'information_schema' AND TABLE_NAME='COLLATION_CHARACTER_SET_APPLICABILITY' "
            "AND COLUMN_NAME='ID'"
        )
        row = cursor.fetchone()
        # MariaDB has collations for several character sets, whose numbers are in the second table
        # only.
        tables = ["COLLATIONS"]
        if row and row[0]:
            tables.append("COLLATION_CHARACTER_SET_APPLICABILITY")
        for table in tables:
            cursor.execute(f"SELECT ID, CHARACTER_SET_NAME FROM INFORMATION_SCHEMA.{table}")
            found.update(
                {int(number): str(name) for number, name in cursor.fetchall() if number and name}
            )
    return found


def decoders(
    charsets: Mapping[int, str], known: Callable[[str], Decode]
) -> Callable[[int], Decode]:
    """Return a function from collations to decoders, given their character sets.

    ``known`` returns the decoder of a character set. The function raises ``ValueError``.
    """

    @cache
    def decode(collation: int) -> Decode:
        if collation not in charsets:
            raise ValueError(f"its collation has the number {collation}, which is not known")
        return known(charsets[collation])

    return decode
