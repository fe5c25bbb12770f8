"""The selection of tables, and masked columns."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompkit.replication.model.events import RowChange
from stompkit.replication.model.tables import Tables
from stompkit.replication.model.values import Value
from tests.replication.made import changes, values

USER = RowChange(
    table="users",
    schema="shop",
    action="update",
    key={"id": 1},
    before={"id": 1, "email": "a@example.org", "age": 40},
    after={"id": 1, "email": None, "age": 41},
)


@pytest.mark.parametrize(
    ("include", "exclude", "wanted"),
    [
        ([], [], True),
        (["users"], [], True),
        (["user"], [], False),
        (["shop.*"], [], True),
        (["other.*"], [], False),
        (["u*"], ["shop.users"], False),
        ([], ["other.users"], True),
        (["USERS"], [], False),
        (["other.users", "users"], [], True),
    ],
)
def test_a_table_is_selected_by_patterns(
    include: list[str], exclude: list[str], *, wanted: bool
) -> None:
    tables = Tables(include, exclude)
    assert tables.wants("shop", "users") is wanted
    assert tables.wants("shop", "users") is wanted, "what was asked before"


@pytest.mark.parametrize(
    ("include", "expected"),
    [
        ([], []),
        (["users", "shop.*"], []),
        (["user"], ["no table matches the pattern 'user' of --tables; did you mean users?"]),
        (
            ["users", "shop.order"],
            ["no table matches the pattern 'shop.order' of --tables; did you mean shop.orders?"],
        ),
        (["zzz*"], ["no table matches the pattern 'zzz*' of --tables"]),
    ],
)
def test_each_pattern_without_a_table_is_reported(include: list[str], expected: list[str]) -> None:
    tables = Tables(include, ["users"])
    assert tables.unmatched({("shop", "users"): (), ("shop", "orders"): ()}) == expected


def test_what_no_user_has_excluded_is_not_warned_of() -> None:
    tables = Tables(["users"], always_exclude=["stompkit_*"])
    assert tables.unmatched({("shop", "users"): ()}) == []
    assert not Tables(always_exclude=["stompkit_*"]).wants("shop", "stompkit_offsets")


def test_each_pattern_that_hides_nothing_is_reported() -> None:
    there = {("shop", "users"): ["id", "email"], ("shop", "orders"): ["id"]}
    used = Tables(
        exclude=["orders"],
        columns_exclude=["shop.users.em*"],
        masks={"users.email": "null", "*.id": "hash:x"},
    )
    assert used.has_column_rules
    assert used.unmatched(there) == []
    misspelt = Tables(
        exclude=["order"],
        columns_exclude=["users.mail"],
        masks={"shop.user.email": "null", "orders.email": "hash:s3cr3t", "zzz.*": "null"},
    )
    end = "so that it hides nothing"
    assert misspelt.unmatched(there) == [
        "no table matches the pattern 'order' of --exclude; did you mean orders?",
        f"no column matches the pattern 'users.mail' of --exclude-columns, {end}; did you mean"
        " users.email?",
        f"no column matches the pattern 'shop.user.email' of --mask, {end}; did you mean"
        " shop.users.email?",
        f"no column matches the pattern 'orders.email' of --mask, {end}; did you mean users.email?",
        f"no column matches the pattern 'zzz.*' of --mask, {end}",
    ]


def test_one_text_in_place_of_a_list_is_refused() -> None:
    with pytest.raises(ValueError, match="one text"):
        Tables("users")
    with pytest.raises(ValueError, match="empty"):
        Tables([""])


@given(changes)
def test_without_rules_nothing_is_touched(change: RowChange) -> None:
    assert Tables().shape(change) is change
    assert Tables(masks={"no-such-table.*": "drop"}).shape(change) == change


def test_a_column_is_left_out() -> None:
    shaped = Tables(columns_exclude=["users.email"]).shape(USER)
    assert shaped.before == {"id": 1, "age": 40}
    assert shaped.after == {"id": 1, "age": 41}
    assert shaped.key == {"id": 1}
    assert Tables(columns_exclude=["other.users.email"]).shape(USER) is USER
    assert Tables(columns_exclude=["shop.users.*il"]).shape(USER) == shaped


def test_masks_change_values_and_leave_null() -> None:
    masks = {"shop.users.email": "truncate:1", "users.age": "constant:x"}
    shaped = Tables(masks=masks).shape(USER)
    assert shaped.before == {"id": 1, "email": "a", "age": "x"}
    assert shaped.after == {"id": 1, "email": None, "age": "x"}
    assert Tables(masks={"users.email": "null"}).shape(USER).before == {
        "id": 1,
        "email": None,
        "age": 40,
    }


def test_equal_values_have_equal_hashes_and_others_do_not() -> None:
    tables = Tables(masks={"users.id": "hash:secret"})
    one = tables.shape(USER)
    other = tables.shape(
        RowChange(table="users", schema="shop", action="delete", key={"id": "1"}, before=None)
    )
    assert one.key["id"] == one.before["id"] if one.before else False
    assert one.key["id"] != other.key["id"], "the number and the text are not the same"
    assert Tables(masks={"users.id": "hash:other"}).shape(USER).key != one.key
    assert len(one.key["id"]) == 64


@given(values, st.sampled_from(["null", "constant:***", "truncate:0", "hash:secret"]))
def test_a_mask_shows_no_value_of_any_type(value: Value, mask: str) -> None:
    change = RowChange(table="t", action="write", key={"id": 1}, after={"id": 1, "v": value})
    try:
        shaped = Tables(masks={"t.v": mask}).shape(change)
    except ValueError as refused:
        assert mask == "truncate:0", refused
        assert not isinstance(value, (str, bytes)), refused
        assert "column v of t" in str(refused)
    else:
        assert shaped.after is not None
        shown = shaped.after["v"]
        if value is None:
            assert shown is None
        else:
            assert shown in (None, "***", "", b"") or (isinstance(shown, str) and len(shown) == 64)


CARD = {"name": "card", "type": "decimal", "precision": 16, "scale": 0, "nullable": False}
NAME = {"name": "name", "type": "text", "native": "citext", "length": 9}


@pytest.mark.parametrize(
    ("column", "mask", "expected"),
    [
        (CARD, "hash:x", {"name": "card", "type": "text", "nullable": False, "length": 64}),
        (CARD, "constant:***", {"name": "card", "type": "text", "nullable": False}),
        (CARD, "null", {**CARD, "nullable": True}),
        (CARD, "truncate:2", None),
        (NAME, "hash:x", {"name": "name", "type": "text", "length": 64}),
        (NAME, "constant:x", {"name": "name", "type": "text"}),
        (NAME, "null", NAME),
        (NAME, "truncate:2", {"name": "name", "type": "text", "length": 9}),
    ],
)
def test_a_masked_column_is_described_as_the_mask_leaves_it(
    column: dict[str, Any], mask: str, expected: dict[str, Any] | None
) -> None:
    change = RowChange(table="t", action="schema", key={}, after={"columns": [column]})
    tables = Tables(masks={f"t.{column['name']}": mask})
    if expected is None:
        with pytest.raises(ValueError, match=r"column card of t: truncate .* use the mask null"):
            tables.shape(change)
    else:
        assert tables.shape(change).after == {"columns": [expected]}


@pytest.mark.parametrize("mask", ["drop", "null", "constant:1", "truncate:1"])
def test_a_key_still_tells_rows_apart(mask: str) -> None:
    with pytest.raises(ValueError, match=r"id is in the key of shop\.users"):
        Tables(masks={"users.id": mask}).shape(USER)


def test_a_changed_schema_does_not_tell_of_columns_that_are_left_out() -> None:
    columns = [{"name": "id", "type": "int"}, {"name": "email", "type": "text"}]
    change = RowChange(
        table="users",
        action="schema",
        key={},
        after={"statement": "ALTER TABLE users ADD email TEXT", "columns": columns},
    )
    assert Tables(columns_exclude=["users.email"]).shape(change).after == {"columns": columns[:1]}
    assert Tables(masks={"users.email": "null"}).shape(change) == change


@pytest.mark.parametrize("mask", ["hash", "hash:", "truncate:x", "null:1", "secret-s3cr3t"])
def test_a_mask_that_is_none_is_refused_without_its_secret(mask: str) -> None:
    with pytest.raises(ValueError, match="mask") as refused:
        Tables(masks={"users.email": mask})
    assert "s3cr3t" not in str(refused.value)


def test_a_pattern_that_names_no_column_is_refused() -> None:
    with pytest.raises(ValueError, match=r"table\.column"):
        Tables(columns_exclude=["email"])


def test_a_secret_is_not_shown() -> None:
    assert "s3cr3t" not in repr(Tables(masks={"users.email": "hash:s3cr3t"}))


@pytest.mark.parametrize(
    ("rules", "option"),
    [
        ({"columns_exclude": ["users.email"]}, "--exclude-columns"),
        ({"masks": {"users.email": "null"}}, "--mask"),
    ],
)
def test_a_column_with_a_rule_is_not_published_under_another_name(
    rules: dict[str, Any], option: str
) -> None:
    columns = [{"name": "mail", "type": "text"}]
    for known in ({"columns": columns}, {}):
        renamed = RowChange(
            table="users",
            action="schema",
            key={},
            after={**known, "renamed": {"email": "mail", "age": "years"}},
        )
        with pytest.raises(ValueError, match=f"email of users is called mail now, which {option}"):
            Tables(**rules).shape(renamed)
        both: dict[str, Any] = {
            "columns_exclude": [*rules.get("columns_exclude", ()), "users.mail"],
            "masks": rules.get("masks"),
        }
        assert (Tables(**both).shape(renamed).after or {})["renamed"]
        assert Tables(columns_exclude=["users.other"]).shape(renamed) == renamed
