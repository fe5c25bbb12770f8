"""Names of nodes: the valid ones, and their encoding."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompkit.replica.identity import (
    branch_of,
    check_branch_id,
    is_origin,
    new_origin,
)

BRANCHES = st.from_regex(r"[A-Za-z0-9._-]{1,64}", fullmatch=True)


@given(BRANCHES)
def test_an_origin_says_its_branch(branch_id: str) -> None:
    origin = new_origin(branch_id)
    assert is_origin(origin)
    assert branch_of(origin) == branch_id


@given(st.text())
def test_an_origin_is_a_branch_and_eight_digits(text: str) -> None:
    """Any input has one reading, or none."""
    if is_origin(text):
        assert new_origin(branch_of(text))[:-8] == text[:-8]
    else:
        with pytest.raises(ValueError, match="no origin"):
            branch_of(text)


def test_two_stores_of_one_branch_are_two_origins() -> None:
    origins = {new_origin("A") for _ in range(100)}
    assert len(origins) == 100


@pytest.mark.parametrize("text", ["0", "00", "000001", "A", "laptop.anna_2-b", "x" * 64])
def test_ids_of_any_length_and_of_digits_only_are_fine(text: str) -> None:
    assert check_branch_id(text) == text
    assert branch_of(new_origin(text)) == text


@pytest.mark.parametrize(
    "text", ["", "x" * 65, "a b", "a~b", "a/b", "a\n", "\u00e9", "\u0661", "*"]
)
def test_a_name_that_may_not_be_is_refused_with_what_may(text: str) -> None:
    for refuse in (check_branch_id, new_origin):
        with pytest.raises(ValueError, match=r"1 to 64 letters from a to z, digits and any of"):
            refuse(text)


@pytest.mark.parametrize(
    "text",
    ["", "A", "A~", "A~1f2e3d4", "A~1f2e3d4c5", "A~1F2E3D4C", "~1f2e3d4c", "A~1f2e3d4c\n", "A~B~"],
)
def test_what_is_no_origin_has_no_branch(text: str) -> None:
    assert not is_origin(text)
    with pytest.raises(ValueError, match="is no origin"):
        branch_of(text)
