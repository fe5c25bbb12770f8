"""Versions, tolerances, limits and escapes."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompkit.frames import (
    AFTER_LOGIN,
    BEFORE_LOGIN,
    VERSIONS,
    Limits,
    Tolerance,
    Version,
    escape,
    unescape,
)
from tests.frames.helpers import ESCAPING, RELAXED, requirement

PAIRS: dict[Version, dict[str, str]] = {
    "1.0": {},
    "1.1": {"\n": r"\n", ":": r"\c", "\\": r"\\"},
    "1.2": {"\n": r"\n", ":": r"\c", "\\": r"\\", "\r": r"\r"},
}
CASES = [
    pytest.param(version, plain, escaped, id=f"{version}-{escaped}")
    for version, pairs in PAIRS.items()
    for plain, escaped in pairs.items()
]


def test_versions_are_listed_oldest_first() -> None:
    assert VERSIONS == ("1.0", "1.1", "1.2")


@requirement("1.1/encoding/decode-newline", "1.2/encoding/decode-newline")
@requirement("1.1/encoding/decode-colon", "1.2/encoding/decode-colon")
@requirement("1.1/encoding/decode-backslash", "1.2/encoding/decode-backslash")
@requirement("1.2/encoding/decode-cr")
@pytest.mark.parametrize(("version", "plain", "escaped"), CASES)
def test_defined_sequences_are_decoded(version: Version, plain: str, escaped: str) -> None:
    assert unescape(escaped, version) == plain
    assert unescape(f"a{escaped}b{escaped}", version) == f"a{plain}b{plain}"


@requirement("1.1/encoding/encode-reverse", "1.2/encoding/encode-reverse")
@requirement("1.1/encoding/escape-outside-connect", "1.2/encoding/escape-outside-connect")
@pytest.mark.parametrize(("version", "plain", "escaped"), CASES)
def test_encoding_is_the_reverse(version: Version, plain: str, escaped: str) -> None:
    assert escape(plain, version) == escaped
    assert escape(f"{plain}x{plain}", version) == f"{escaped}x{escaped}"
    assert escape("x y", version) == "x y"


@requirement("1.1/encoding/undefined-escape-fatal", "1.2/encoding/undefined-escape-fatal")
@pytest.mark.parametrize("version", ESCAPING)
@pytest.mark.parametrize(
    "sequence",
    [r"\t", r"\N", r"\C", r"\R", r"\0", r"\x41", r"\u0041", r"\:", r"\ ", "\\\n", "\\", "\\😀"],
)
@pytest.mark.parametrize("before", ["", "x", r"\\", r"\n\c"])
def test_an_undefined_sequence_is_an_error(version: Version, sequence: str, before: str) -> None:
    with pytest.raises(ValueError, match=r".*") as caught:
        unescape(before + sequence, version)
    assert caught.value.args == (sequence[:2],)


@requirement("1.1/encoding/undefined-escape-fatal")
def test_carriage_return_has_no_escape_on_1_1() -> None:
    with pytest.raises(ValueError, match=r".*") as caught:
        unescape(r"a\rb", "1.1")
    assert caught.value.args == (r"\r",)
    assert escape("a\rb", "1.1") == "a\rb"


@pytest.mark.parametrize("version", ESCAPING)
@pytest.mark.parametrize("sequence", [r"\t", r"\:", "\\\n", "\\"])
def test_an_undefined_sequence_stands_for_itself_if_asked(version: Version, sequence: str) -> None:
    text = rf"\c\\{sequence}"
    assert unescape(text, version, keep_unknown=True) == f":\\{sequence}"


@requirement("1.0/bnf/no-escaping")
@pytest.mark.parametrize("text", [r"\n", r"\c", r"\\", r"\t", "\\", "a:b\n\r"])
def test_1_0_has_no_escapes(text: str) -> None:
    assert escape(text, "1.0") == text
    assert unescape(text, "1.0") == text


@pytest.mark.parametrize("version", ESCAPING)
def test_decoding_happens_once(version: Version) -> None:
    assert unescape(r"\\n", version) == r"\n"
    assert unescape(r"\\\n", version) == "\\\n"
    assert unescape(r"\\\\c", version) == r"\\c"


@RELAXED
@given(st.sampled_from(VERSIONS), st.text(st.characters()))
def test_escaping_loses_nothing_and_hides_every_delimiter(version: Version, text: str) -> None:
    escaped = escape(text, version)
    assert unescape(escaped, version) == text
    assert not any(plain in escaped for plain in PAIRS[version] if plain != "\\")


def test_strict_tolerates_nothing_and_lenient_everything() -> None:
    assert not Tolerance.NONE
    everything = Tolerance.NONE
    for member in Tolerance:
        everything |= member
    assert everything is Tolerance.LENIENT
    assert len(Tolerance) == 8


@requirement("1.1/limits/header-count", "1.2/limits/header-count")
@requirement("1.1/limits/header-length", "1.2/limits/header-length")
@requirement("1.1/limits/body-size", "1.2/limits/body-size")
def test_strangers_get_no_more_than_those_who_logged_in() -> None:
    before, after = dataclasses.asdict(BEFORE_LOGIN), dataclasses.asdict(AFTER_LOGIN)
    assert all(before[name] <= after[name] for name in before)
    assert before["max_frame_bytes"] < after["max_frame_bytes"]


def test_limits_are_values() -> None:
    assert Limits() == AFTER_LOGIN
    with pytest.raises(dataclasses.FrozenInstanceError):
        AFTER_LOGIN.max_headers = 1  # type: ignore[misc]
