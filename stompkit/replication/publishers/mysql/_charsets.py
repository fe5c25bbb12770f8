"""MySQL's character sets, as Python reads them."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from pymysql.connections import Connection

__all__ = ["Decode", "collations", "decoders"]

#: Makes text of octets; raises UnicodeDecodeError.
Decode = Callable[[bytes], str]

_CODECS: Final = {
    "armscii8": "",
    "ascii": "ascii",
    "big5": "big5",
    "cp1250": "cp1250",
    "cp1251": "cp1251",
    "cp1256": "cp1256",
    "cp1257": "cp1257",
    "cp850": "cp850",
    "cp852": "cp852",
    "cp866": "cp866",
    "cp932": "cp932",
    "eucjpms": "euc_jp",
    "euckr": "cp949",
    "gb18030": "gb18030",
    "gb2312": "gb2312",
    "gbk": "gbk",
    "greek": "iso8859-7",
    "hebrew": "iso8859-8",
    "hp8": "hp_roman8",
    "koi8r": "koi8_r",
    "koi8u": "koi8_u",
    "latin2": "iso8859-2",
    "latin5": "iso8859-9",
    "latin7": "iso8859-13",
    "macce": "mac_latin2",
    "macroman": "mac_roman",
    "sjis": "shift_jis",
    "tis620": "tis_620",
    "ucs2": "utf-16-be",
    "ujis": "euc_jp",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "utf8": "utf-8",
    "utf8mb3": "utf-8",
    "utf8mb4": "utf-8",
}


def _latin1_table() -> str:
    """MySQL's latin1 is Windows' 1252 with the five octets that are nothing there as they are."""
    found = (codecs.decode(bytes([octet]), "cp1252", "replace") for octet in range(256))
    return "".join(
        chr(octet) if character == "\ufffd" else character for octet, character in enumerate(found)
    )


_LATIN1: Final = _latin1_table()


def _latin1(octets: bytes) -> str:
    return codecs.charmap_decode(octets, "strict", _LATIN1)[0]


def _decoder(charset: str) -> Decode:
    """What makes text of a character set; raises ``ValueError`` for one that Python has not."""
    if charset == "latin1":
        return _latin1
    codec = _CODECS.get(charset)
    if not codec:
        raise ValueError(f"text in the character set {charset} can't be read: convert the column")
    return lambda octets: str(octets, codec)


def collations(connection: Connection[Any]) -> Mapping[int, str]:
    """The character sets of a server's collations by their numbers."""
    found: dict[int, str] = {}
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT COUNT(*) FROM INFORMATION_SCHEMA.COLUMNS WHERE TABLE_SCHEMA="
            "'information_schema' AND TABLE_NAME='COLLATION_CHARACTER_SET_APPLICABILITY' "
            "AND COLUMN_NAME='ID'"
        )
        row = cursor.fetchone()
        # MariaDB has collations for several character sets, whose numbers are in the second only.
        tables = ["COLLATIONS"]
        if row and row[0]:
            tables.append("COLLATION_CHARACTER_SET_APPLICABILITY")
        for table in tables:
            cursor.execute(f"SELECT ID, CHARACTER_SET_NAME FROM INFORMATION_SCHEMA.{table}")
            found.update(
                {int(number): str(name) for number, name in cursor.fetchall() if number and name}
            )
    return found


def decoders(charsets: Mapping[int, str]) -> Callable[[int], Decode]:
    """What makes text of collations, given their character sets; raises ``ValueError``."""

    @cache
    def decode(collation: int) -> Decode:
        if collation not in charsets:
            raise ValueError(f"its collation has the number {collation}, which is not known")
        return _decoder(charsets[collation])

    return decode
