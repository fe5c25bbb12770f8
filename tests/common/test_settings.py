"""Configuration files, and suggestions for misspelt words."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompkit._common.settings import ConfigurationError, canonical, read_toml
from stompkit._common.spelling import closest, suggestion

names = st.from_regex(r"[a-z]+([_-][a-z]+){0,3}", fullmatch=True)


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "some.toml"
    path.write_text('a-b = 1\n[c]\nd = "ümläut"\n', encoding="utf-8")
    assert read_toml(path) == {"a-b": 1, "c": {"d": "ümläut"}}


def test_a_byte_order_mark_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "some.toml"
    path.write_text("a = 1\n", encoding="utf-8-sig")
    assert read_toml(path) == {"a": 1}


@pytest.mark.parametrize(
    ("octets", "reason"),
    [
        (b"a = \n", "Invalid value"),
        (b"a = '\xff'\n", "not UTF-8"),
        (b"a = " + b"[" * 10_000, "nested too deeply"),
        (None, "No such file"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, octets: bytes | None, reason: str
) -> None:
    path = tmp_path / "some.toml"
    if octets is not None:
        path.write_bytes(octets)
    with pytest.raises(ConfigurationError, match=f"^{path}: .*{reason}"):
        read_toml(path)


@given(table=st.dictionaries(names, st.integers()))
def test_keys_are_written_in_either_way(table: dict[str, int]) -> None:
    known = {name.replace("_", "-"): value for name, value in table.items()}
    spellings = [
        known,
        {name.replace("-", "_"): value for name, value in known.items()},
    ]
    assert all(canonical(each, known) == known for each in spellings)
    # The same holds where keys are written with underscores.
    assert canonical(spellings[0], spellings[1]) == spellings[1]


def test_a_key_in_both_spellings_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"^a_b: a-b is given twice, in two spellings$"):
        canonical({"a-b": 1, "a_b": 2}, ["a-b"])


def test_unknown_keys_stay_as_they_are() -> None:
    assert canonical({"of_mine": 1}, ["a-b"]) == {"of_mine": 1}


def test_the_closest_word_is_suggested() -> None:
    words = ["destination", "selector"]
    assert closest("destinatoin", words) == "destination"
    assert suggestion("selektor", words) == "did you mean selector?"
    assert closest("xyz", words) is None
    assert suggestion("xyz", words) == "there are destination, selector"
