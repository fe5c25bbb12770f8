"""Message selectors: the three-valued result of each operator, and invalid selectors."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompkit.server.selectors import Selector, SelectorError

#: Result of a condition for a message: true, false or unknown.
Verdict: TypeAlias = bool | None
TRUE: Final = True
FALSE: Final = False
UNKNOWN: Final = None


def value(text: str, headers: Mapping[str, str]) -> Verdict:
    """Return the result of a condition: evaluate it and its negation."""
    taken = Selector(text).takes(headers)
    refused = Selector(f"NOT ({text})").takes(headers)
    assert not (taken and refused)
    return TRUE if taken else FALSE if refused else UNKNOWN


def error_of(text: str) -> SelectorError:
    """Return the error of an invalid selector."""
    with pytest.raises(SelectorError) as caught:
        Selector(text)
    return caught.value


@pytest.mark.parametrize(
    ("text", "headers", "expected"),
    [
        ("a = 'x'", {"a": "x"}, TRUE),
        ("a = 'x'", {"a": "X"}, FALSE),
        ("a = 'x'", {}, UNKNOWN),
        ("a = 'it''s'", {"a": "it's"}, TRUE),
        ("a = ''", {"a": ""}, TRUE),
        ("a <> 'x'", {"a": "y"}, TRUE),
        ("a <> 'x'", {"a": "x"}, FALSE),
        ("a <> 'x'", {}, UNKNOWN),
        ("'x' = a", {"a": "x"}, TRUE),
        ("a = b", {"a": "x", "b": "x"}, TRUE),
        ("a = b", {"a": "1", "b": "1.0"}, FALSE),
        ("a = b", {"a": "x"}, UNKNOWN),
        ("a = '1'", {"a": "1"}, TRUE),
        ("a = '1.0'", {"a": "1"}, FALSE),
    ],
)
def test_headers_and_strings_are_equal_by_their_characters(
    text: str, headers: dict[str, str], expected: Verdict
) -> None:
    assert value(text, headers) is expected


@pytest.mark.parametrize(
    ("text", "a", "expected"),
    [
        ("a = 1", "1", TRUE),
        ("a = 1", "1.0", TRUE),
        ("a = 1", "+1", TRUE),
        ("a = 1", "01", TRUE),
        ("a = 1", "2", FALSE),
        ("a <> 1", "2", TRUE),
        ("a <> 1", "1", FALSE),
        ("a < 2", "1", TRUE),
        ("a < 2", "2", FALSE),
        ("a <= 2", "2", TRUE),
        ("a <= 2", "3", FALSE),
        ("a > 2", "3", TRUE),
        ("a > 2", "2", FALSE),
        ("a >= 2", "2", TRUE),
        ("a >= 2", "1", FALSE),
        ("10 > a", "9", TRUE),
        ("a = 7.", "7", TRUE),
        ("a = .5", "0.5", TRUE),
        ("a = 7E3", "7000", TRUE),
        ("a = -57.9e-2", "-.579", TRUE),
        ("a = 9007199254740993", "9007199254740992", FALSE),
        ("a < b", "9", TRUE),
    ],
)
def test_a_header_beside_a_number_is_read_as_a_number(text: str, a: str, expected: Verdict) -> None:
    assert value(text, {"a": a, "b": "10"}) is expected


@pytest.mark.parametrize(
    "a",
    [None, "", "x", " 1", "1 ", "1_0", "0x1", "1L", "nan", "inf", "1e999", "٣", "--1", ".", "e1"],
)
@pytest.mark.parametrize("mark", ["=", "<>", "<", "<=", ">", ">="])
def test_a_comparison_of_a_number_with_what_is_none_is_unknown(a: str | None, mark: str) -> None:
    headers = {} if a is None else {"a": a}
    assert value(f"a {mark} 1", headers) is UNKNOWN
    assert value(f"1 {mark} a", headers) is UNKNOWN
    assert value(f"a + 0 {mark} 1", headers) is UNKNOWN


@pytest.mark.parametrize("mark", ["<", "<=", ">", ">="])
@pytest.mark.parametrize("right", ["'x'", "TRUE", "(1 = 1)"])
def test_only_numbers_have_an_order(mark: str, right: str) -> None:
    assert value(f"a {mark} {right}", {"a": "a"}) is UNKNOWN
    assert value(f"{right} {mark} a", {"a": "true"}) is UNKNOWN
    assert value(f"a {mark} b", {"a": "x", "b": "y"}) is UNKNOWN


@pytest.mark.parametrize("text", ["1 = '1'", "'a' <> 1", "TRUE = 'true'", "1 <> TRUE"])
def test_different_types_compare_as_unknown(text: str) -> None:
    assert value(text, {}) is UNKNOWN


@pytest.mark.parametrize(
    ("text", "a", "expected"),
    [
        ("a = TRUE", "true", TRUE),
        ("a = true", "TRUE", TRUE),
        ("a = TRUE", "False", FALSE),
        ("a <> FALSE", "true", TRUE),
        ("a = FALSE", "yes", UNKNOWN),
        ("a = TRUE", None, UNKNOWN),
        ("a = 'true'", "TRUE", FALSE),
        ("a = (1 < 2)", "true", TRUE),
        ("a = (b < 2)", "true", UNKNOWN),
        ("a", "true", TRUE),
        ("a", "FALSE", FALSE),
        ("a", "1", UNKNOWN),
        ("a", None, UNKNOWN),
        ("TRUE", None, TRUE),
        ("FALSE", None, FALSE),
    ],
)
def test_a_header_beside_a_condition_or_as_one_is_true_or_false(
    text: str, a: str | None, expected: Verdict
) -> None:
    assert value(text, {} if a is None else {"a": a}) is expected


@pytest.mark.parametrize(
    ("left", "right", "both", "either"),
    [
        ("TRUE", "TRUE", TRUE, TRUE),
        ("TRUE", "FALSE", FALSE, TRUE),
        ("TRUE", "u = 1", UNKNOWN, TRUE),
        ("FALSE", "TRUE", FALSE, TRUE),
        ("FALSE", "FALSE", FALSE, FALSE),
        ("FALSE", "u = 1", FALSE, UNKNOWN),
        ("u = 1", "TRUE", UNKNOWN, TRUE),
        ("u = 1", "FALSE", FALSE, UNKNOWN),
        ("u = 1", "u = 1", UNKNOWN, UNKNOWN),
    ],
)
def test_and_and_or_have_three_values(
    left: str, right: str, both: Verdict, either: Verdict
) -> None:
    assert value(f"{left} AND {right}", {}) is both
    assert value(f"{left} OR {right}", {}) is either


@pytest.mark.parametrize(
    ("text", "expected"), [("NOT TRUE", FALSE), ("NOT FALSE", TRUE), ("NOT u = 1", UNKNOWN)]
)
def test_not_has_three_values(text: str, expected: Verdict) -> None:
    assert value(text, {}) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2 * 3 = 7", TRUE),
        ("(1 + 2) * 3 = 9", TRUE),
        ("10 - 3 - 2 = 5", TRUE),
        ("24 / 4 / 2 = 3", TRUE),
        ("24 / 4 * 2 = 12", TRUE),
        ("7 / 2 = 3", TRUE),
        ("-7 / 2 = -3", TRUE),
        ("7 / -2 = -3", TRUE),
        ("-7 / -2 = 3", TRUE),
        ("7.0 / 2 = 3.5", TRUE),
        ("- - 2 = +2", TRUE),
        ("-two*-two=4", TRUE),
        ("5-two=3", TRUE),
        ("two + half = 2.5", TRUE),
        ("two / half = 4", TRUE),
        ("1 / 0 = 1", UNKNOWN),
        ("1.5 / 0.0 <> 1", UNKNOWN),
        ("two / (two - 2) = 1", UNKNOWN),
        ("missing + 1 = 1", UNKNOWN),
        ("1 * missing = 1", UNKNOWN),
        ("-missing = 1", UNKNOWN),
        ("-word <> 1", UNKNOWN),
        ("1e308 * 10 > 1", UNKNOWN),
        ("1e308 * 10 - 1e308 * 10 <> 1", UNKNOWN),
        (" * ".join(["9999999999"] * 40) + " > 1", UNKNOWN),
        (" * ".join(["9999999999"] * 30) + " + 0.5 > 1", TRUE),
    ],
)
def test_arithmetic(text: str, expected: Verdict) -> None:
    assert value(text, {"two": "2", "half": "0.5", "word": "x"}) is expected


@pytest.mark.parametrize(
    ("text", "a", "expected"),
    [
        ("a BETWEEN 2 AND 4", "2", TRUE),
        ("a BETWEEN 2 AND 4", "4", TRUE),
        ("a BETWEEN 2 AND 4", "4.01", FALSE),
        ("a BETWEEN 2 AND 4", "1", FALSE),
        ("a BETWEEN 2 AND 4", None, UNKNOWN),
        ("a BETWEEN 2 AND 4", "x", UNKNOWN),
        ("a BETWEEN 4 AND 2", "3", FALSE),
        ("a BETWEEN missing AND 4", "5", FALSE),
        ("a BETWEEN missing AND 4", "3", UNKNOWN),
        ("a BETWEEN 2 AND missing", "1", FALSE),
        ("a BETWEEN 2 AND missing", "3", UNKNOWN),
        ("a BETWEEN 'a' AND 'z'", "b", UNKNOWN),
        ("a NOT BETWEEN 2 AND 4", "3", FALSE),
        ("a NOT BETWEEN 2 AND 4", "5", TRUE),
        ("a NOT BETWEEN 2 AND 4", None, UNKNOWN),
        ("a NOT BETWEEN 2 AND missing", "1", TRUE),
        ("a + 1 BETWEEN 1 + 1 AND 2 * 2 AND TRUE", "3", TRUE),
        ("3 BETWEEN a AND 4", "3", TRUE),
    ],
)
def test_between(text: str, a: str | None, expected: Verdict) -> None:
    assert value(text, {} if a is None else {"a": a}) is expected


@pytest.mark.parametrize(
    ("text", "a", "expected"),
    [
        ("a IN ('x')", "x", TRUE),
        ("a IN ('x', 'it''s')", "it's", TRUE),
        ("a IN ('x', 'y')", "z", FALSE),
        ("a IN ('x')", None, UNKNOWN),
        ("a NOT IN ('x', 'y')", "z", TRUE),
        ("a NOT IN ('x', 'y')", "y", FALSE),
        ("a NOT IN ('x')", None, UNKNOWN),
        ("a IN (1, -2, +3.5)", "1.0", TRUE),
        ("a IN (1, -2, +3.5)", "-2", TRUE),
        ("a IN (1, -2, +3.5)", "3.5", TRUE),
        ("a IN (1, -2)", "2", FALSE),
        ("a NOT IN (1)", "x", UNKNOWN),
        ("a IN ('x', 1)", "x", TRUE),
        ("a IN ('x', 1)", "y", UNKNOWN),
        ("a IN ('x', 1)", "2", FALSE),
        ("a IN ('1')", "1.0", FALSE),
    ],
)
def test_in(text: str, a: str | None, expected: Verdict) -> None:
    assert value(text, {} if a is None else {"a": a}) is expected


@pytest.mark.parametrize(
    ("text", "a", "expected"),
    [
        ("a LIKE '12%3'", "123", TRUE),
        ("a LIKE '12%3'", "12993", TRUE),
        ("a LIKE '12%3'", "1234", FALSE),
        ("a LIKE 'l_se'", "lose", TRUE),
        ("a LIKE 'l_se'", "loose", FALSE),
        ("a LIKE '\\_%' ESCAPE '\\'", "_foo", TRUE),
        ("a LIKE '\\_%' ESCAPE '\\'", "bar", FALSE),
        ("a LIKE '100!%' ESCAPE '!'", "100%", TRUE),
        ("a LIKE '100!%' ESCAPE '!'", "100!", FALSE),
        ("a LIKE 'a!!' ESCAPE '!'", "a!", TRUE),
        ("a LIKE '%%' ESCAPE '%'", "%", TRUE),
        ("a LIKE '%%' ESCAPE '%'", "x", FALSE),
        ("a LIKE ''''", "'", TRUE),
        ("a LIKE ''", "", TRUE),
        ("a LIKE ''", "x", FALSE),
        ("a LIKE '%'", "", TRUE),
        ("a LIKE 'a%a'", "a", FALSE),
        ("a LIKE '%a_c%'", "ab\nabc", TRUE),
        ("a LIKE '_'", "\n", TRUE),
        ("a LIKE '_'", "\U0001f680", TRUE),
        ("a LIKE 'a.*[b]'", "a.*[b]", TRUE),
        ("a LIKE 'a.c'", "abc", FALSE),
        ("a LIKE 'A%'", "abc", FALSE),
        ("a LIKE '1%'", None, UNKNOWN),
        ("a NOT LIKE '1%'", "23", TRUE),
        ("a NOT LIKE '1%'", "12", FALSE),
        ("a NOT LIKE '1%'", None, UNKNOWN),
    ],
)
def test_like(text: str, a: str | None, expected: Verdict) -> None:
    assert value(text, {} if a is None else {"a": a}) is expected


@pytest.mark.parametrize(
    ("text", "a", "expected"),
    [
        ("a IS NULL", None, TRUE),
        ("a IS NULL", "", FALSE),
        ("a IS NOT NULL", "x", TRUE),
        ("a IS NOT NULL", None, FALSE),
        ("(a) IS NULL", None, TRUE),
    ],
)
def test_is_null_is_never_unknown(text: str, a: str | None, expected: Verdict) -> None:
    assert value(text, {} if a is None else {"a": a}) is expected


@pytest.mark.parametrize(
    "text",
    [
        "a = 1 OR b = 1 AND c = 1",
        "NOT b = 1 AND a = 1",
        "NOT NOT a = 1",
        "NOT (a = 1 AND b = 1)",
        "a = 1 AND NOT b = 1 OR c = 1",
        "a=1AND(b)IS NOT NULL",
        "a = 1\tAnd\r\nb\fis not null",
        "b in ('2') AND a between 0 and 1 or c like 'x'",
    ],
)
def test_precedence_case_and_blanks(text: str) -> None:
    assert Selector(text).takes({"a": "1", "b": "2", "c": "3"})


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("_a$1 = 'x'", "_a$1"),
        ("$ = 'x'", "$"),
        ("größe = 'x'", "größe"),
        ("e\u0301 = 'x'", "e\u0301"),
        ("\u0131s = 'x'", "\u0131s"),
        ("\"content-type\" = 'x'", "content-type"),
        ('"a ""b""" = \'x\'', 'a "b"'),
        ("\"NOT\" = 'x'", "NOT"),
        ("nullable = 'x'", "nullable"),
    ],
)
def test_a_name_stands_for_the_header_of_that_name(text: str, name: str) -> None:
    assert Selector(text).takes({name: "x"})
    assert not Selector(text).takes({name.swapcase() + "-": "x"})


def test_names_are_case_sensitive() -> None:
    assert not Selector("A = 'x'").takes({"a": "x"})


def test_a_bare_name_with_a_hyphen_is_a_difference() -> None:
    assert Selector("a-b = 3").takes({"a": "5", "b": "2", "a-b": "9"})


@pytest.mark.parametrize(
    ("name", "header", "text"),
    [
        ("JMSPriority", "priority", "7"),
        ("JMSMessageID", "message-id", "m"),
        ("JMSTimestamp", "timestamp", "12"),
        ("JMSCorrelationID", "correlation-id", "c"),
        ("JMSType", "type", "t"),
    ],
)
def test_jms_names_stand_for_stomp_headers_unless_there_is_one_of_that_name(
    name: str, header: str, text: str
) -> None:
    selector = Selector(f"{name} = '{text}'")
    assert selector.takes({header: text})
    assert selector.takes({header: "other", name: text})
    assert not selector.takes({header: text, name: "other"})
    assert not selector.takes({})


@pytest.mark.parametrize(
    ("headers", "mode"),
    [
        ({"persistent": "true"}, "PERSISTENT"),
        ({"persistent": "false"}, "NON_PERSISTENT"),
        ({}, "NON_PERSISTENT"),
        ({"persistent": "true", "JMSDeliveryMode": "X"}, "X"),
    ],
)
def test_the_delivery_mode_is_told_by_the_persistent_header(
    headers: dict[str, str], mode: str
) -> None:
    assert Selector(f"JMSDeliveryMode = '{mode}'").takes(headers)


def test_only_the_priority_and_the_delivery_mode_are_never_null() -> None:
    assert Selector("JMSPriority = 4 AND JMSDeliveryMode IS NOT NULL").takes({})
    for name in ("JMSMessageID", "JMSTimestamp", "JMSCorrelationID", "JMSType"):
        assert Selector(f"{name} IS NULL").takes({})


# Invalid selectors.


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        ("", 0, "expected a value"),
        ("  ", 2, "expected a value"),
        ("a = ", 4, "expected a value"),
        ("a = = 1", 4, "expected a value"),
        ("a = NULL", 4, "expected a value"),
        ("a = NOT b", 4, "expected a value"),
        ("AND a", 0, "expected a value"),
        ("escape = 1", 0, "expected a value"),
        ("a AND", 5, "expected a value"),
        ("(a", 2, "expected )"),
        ("(a = 1 b", 7, "expected )"),
        ("()", 1, "expected a value"),
        ("a)", 1, "expected AND, OR or the end"),
        ("a = 1 = 2", 6, "expected AND, OR or the end"),
        ("NOT a = 1 = TRUE", 10, "expected AND, OR or the end"),
        ("a = 5L", 5, "expected AND, OR or the end"),
        ("a = 0x1F", 5, "expected AND, OR or the end"),
        ("a b", 2, "expected AND, OR or the end"),
        ("1", 0, "expected a condition, not a number"),
        ("'x' OR a", 0, "expected a condition, not a string"),
        ("a AND 1 + b", 6, "expected a condition, not a number"),
        ("NOT 'x'", 4, "expected a condition, not a string"),
        ("1 + 'x' = 2", 4, "expected a number, not a string"),
        ("'x' * 2 = 2", 0, "expected a number, not a string"),
        ("-TRUE = 1", 1, "expected a number, not a condition"),
        ("(a = 1) + 1 = 2", 1, "expected a number, not a condition"),
        ("1 IS NULL", 0, "expected the name of a header, not a number"),
        ("a = 1 AND 'x' IN ('x')", 10, "expected the name of a header, not a string"),
        ("a + 1 LIKE 'x'", 0, "expected the name of a header, not a number"),
        ("a IS 1", 5, "expected NULL"),
        ("a IS NOT", 8, "expected NULL"),
        ("a NOT = 1", 6, "expected BETWEEN, IN or LIKE"),
        ("a BETWEEN 1 OR 2", 12, "expected AND"),
        ("a BETWEEN 1 AND", 15, "expected a value"),
        ("a IN 'x'", 5, "expected ("),
        ("a IN ()", 6, "expected a string or a number"),
        ("a IN ('x',)", 10, "expected a string or a number"),
        ("a IN (b)", 6, "expected a string or a number"),
        ("a IN (-'x')", 7, "expected a number"),
        ("a IN ('x' 'y')", 10, "expected )"),
        ("a LIKE b", 7, "expected a pattern in quotes"),
        ("a LIKE 'x' ESCAPE", 17, "expected one character in quotes"),
        ("a LIKE 'x' ESCAPE ''", 18, "expected one character in quotes"),
        ("a LIKE 'x' ESCAPE 'ab'", 18, "expected one character in quotes"),
        ("a LIKE 'x!' ESCAPE '!'", 7, "pattern with nothing after its last escape character"),
        ("a = 'x", 4, "string without its last quote"),
        ("a = 'it''s", 4, "string without its last quote"),
        ('a = "x', 4, "name without its last quote"),
        ("a != 1", 2, "unexpected character"),
        ("a\x00b", 1, "unexpected character"),
        ("a % 2 = 1", 2, "unexpected character"),
        ("a.b = 1", 1, "unexpected character"),
        ("a = 1 AND a\u2028= 1", 10, "name that needs double quotes"),
        ("a = 1e999", 4, "number too large, or of more than 40 characters"),
        ("a IN (1, 1e999)", 9, "number too large, or of more than 40 characters"),
    ],
)
def test_an_error_says_what_is_wrong_and_where(text: str, position: int, message: str) -> None:
    error = error_of(text)
    assert (error.message, error.position) == (message, position)
    assert str(error).startswith(f"{message} at offset {position} of ")


def test_the_text_of_an_error_repeats_the_selector() -> None:
    assert str(error_of("a = ")) == 'expected a value at offset 4 of "a = "'


def test_the_text_of_an_error_repeats_no_more_of_a_long_selector_than_is_near() -> None:
    error = error_of("a = 1 AND " * 50 + "= " + "AND a = 1" * 50)
    assert "offset 500" in str(error)
    assert "AND = AND" in str(error)
    assert len(str(error)) < 200


def test_an_error_is_a_value_error() -> None:
    assert isinstance(error_of("="), ValueError)


# Limits.


@pytest.mark.parametrize(
    "text",
    [
        "(" * 4_000 + "TRUE" + ")" * 4_000,
        "(" * 8_192,
        "NOT " * 2_000 + "TRUE",
        "1 = " + "-" * 8_000 + "1",
        "a OR (" * 900,
        "a AND NOT (b = " * 400,
        "a = 1 + 2 * (" * 300,
    ],
)
def test_what_is_nested_too_deeply_is_refused(text: str) -> None:
    assert error_of(text).message == "nested too deeply"


def test_ninety_nine_parentheses_are_taken_and_a_hundred_are_not() -> None:
    assert Selector("(" * 99 + "TRUE" + ")" * 99).takes({})
    error = error_of("(" * 100 + "TRUE" + ")" * 100)
    assert (error.message, error.position) == ("nested too deeply", 100)


@pytest.mark.parametrize(
    ("seed", "around", "rest"),
    [
        ("TRUE", "({} = TRUE AND TRUE OR FALSE)", ""),
        ("NOT FALSE", "({} = TRUE AND TRUE OR FALSE)", ""),
        ("a", "(({}) * 1 + 0)", " = 1"),
        ("a", "({} * 1 + 0)", " = 1"),
    ],
)
def test_the_deepest_selectors_can_be_evaluated(seed: str, around: str, rest: str) -> None:
    text = seed
    while True:
        deeper = around.format(text)
        try:
            Selector(deeper + rest)
        except SelectorError as error:
            assert error.message == "nested too deeply"
            break
        text = deeper
    assert Selector(text + rest).takes({"a": "1"})


def test_a_selector_has_at_most_8192_octets() -> None:
    assert Selector("a = 1" + " " * 8_187).takes({"a": "1"})
    assert error_of("a = 1" + " " * 8_188).message == "selector of more than 8192 octets"
    assert error_of("a = '" + "é" * 4_094 + "'").message == "selector of more than 8192 octets"
    assert error_of("(" * 10_000_000).position == 0


def test_a_selector_has_at_most_1000_names_and_values() -> None:
    assert Selector("a=" + "+".join("1" * 999)).takes({"a": "999"})
    error = error_of("a=" + "+".join("1" * 1_000))
    assert (error.message, error.position) == ("more than 1000 names and values", 2_000)


def test_a_number_has_at_most_40_characters() -> None:
    assert Selector(f"a = {'9' * 40}").takes({"a": "9" * 40})
    assert error_of(f"a = {'9' * 41}").position == 4
    assert value("a > 1", {"a": "9" * 41}) is UNKNOWN
    assert value("a > 1", {"a": "9" * 1_000_000}) is UNKNOWN


def test_patterns_have_at_most_512_characters_together() -> None:
    assert Selector(f"a LIKE '{'x' * 256}' OR b LIKE '{'x' * 256}'").takes({"b": "x" * 256})
    error = error_of(f"a LIKE '{'x' * 256}' OR b LIKE '{'x' * 257}'")
    assert (error.message, error.position) == ("patterns of more than 512 characters", 276)


@pytest.mark.parametrize(
    "pattern", ["%a" * 250 + "c", "%a" * 250 + "c%", "%_" * 250 + "c", "%" + "a_" * 250 + "c%"]
)
def test_patterns_that_nearly_match_end(pattern: str) -> None:
    assert not Selector(f"a LIKE '{pattern}'").takes({"a": "ab" * 30_000})


# Properties of every selector and message.

any_text = st.text(st.characters(exclude_categories=[]), max_size=30)
#: Texts of words that selectors consist of, in any order.
word_soup = st.lists(
    st.one_of(
        st.sampled_from("AND BETWEEN ESCAPE FALSE IN IS LIKE NOT NULL OR TRUE".split()),
        st.sampled_from("a b 1 2.5 1e9 'x' '%' '' \"c-d\" ( ) , + - * / = <> < <= > >=".split()),
        st.sampled_from(["'", '"', ".", "a IS NULL", "a LIKE '%_' ESCAPE 'x'", "a IN (1,'x')"]),
    ),
    max_size=12,
).map(" ".join)
header_values = st.one_of(st.sampled_from(["1", "-2.5", "x", "true", "", "1e999"]), any_text)
any_headers = st.dictionaries(
    st.one_of(st.sampled_from(["a", "b", "c-d"]), any_text), header_values, max_size=4
)


@given(st.one_of(any_text, word_soup), any_headers)
def test_a_text_is_refused_with_a_place_in_it_or_takes_messages_or_not(
    text: str, headers: dict[str, str]
) -> None:
    try:
        selector = Selector(text)
    except SelectorError as error:
        assert 0 <= error.position <= len(text)
        assert error.message in str(error)
        assert str(error).isascii()
    else:
        assert selector.text == text
        assert selector.takes(headers) in (True, False)


def like(text: str, pattern: str, escape: str | None) -> bool:
    """Return True if text matches a pattern, by the possible ends of each part of the pattern."""
    ends = {0}
    rest = iter(pattern)
    for wanted in rest:
        if wanted == escape:
            literal = next(rest)
            ends = {end + 1 for end in ends if text[end : end + 1] == literal}
        elif wanted == "%":
            ends = set(range(min(ends, default=len(text) + 1), len(text) + 1))
        elif wanted == "_":
            ends = {end + 1 for end in ends if end < len(text)}
        else:
            ends = {end + 1 for end in ends if text[end : end + 1] == wanted}
    return len(text) in ends


def quoted(text: str) -> str:
    """Return a string as a literal in a selector."""
    return "'" + text.replace("'", "''") + "'"


@given(
    st.text("ab%_!'\n", max_size=10),
    st.text("ab%_!'.", max_size=8),
    st.sampled_from([None, "!", "%", "_", "a"]),
)
def test_like_agrees_with_a_reference(text: str, pattern: str, escape: str | None) -> None:
    condition = f"a LIKE {quoted(pattern)}" + (f" ESCAPE {quoted(escape)}" if escape else "")
    try:
        expected = like(text, pattern, escape)
    except StopIteration:
        assert error_of(condition).position == len("a LIKE ")
    else:
        assert value(condition, {"a": text}) is expected


# Generated conditions, and an evaluator that follows the specification literally.


@dataclass(frozen=True)
class Tree:
    """A part of a condition: an operator with its operands, or a leaf with its value."""

    op: str
    parts: tuple[Tree, ...] = ()
    value: Any = None


NAMES: Final = ("a", "b", "c-d")
COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
ARITHMETIC: Final = ("+", "-", "*", "/")
#: Precedence of operators; all other nodes are leaves.
BINDING: Final = {
    **{"OR": 0, "AND": 1, "NOT": 2, "IN": 3, "LIKE": 3, "IS": 3, "BETWEEN": 3},
    **dict.fromkeys(COMPARISONS, 3),
    **{"+": 4, "-": 4, "*": 5, "/": 5, "sign": 6},
}

names = st.sampled_from(NAMES).map(lambda name: Tree("name", value=name))
numbers = st.sampled_from([0, 1, 2, 7, 0.5, 2.0]).map(lambda number: Tree("number", value=number))
strings = st.sampled_from(["x", "1", "a%b", "it's", "true"]).map(lambda s: Tree("string", value=s))
patterns = st.sampled_from(["%", "a%", "_", "t__e", "%1"]).map(lambda s: Tree("string", value=s))
truths = st.booleans().map(lambda truth: Tree("truth", value=truth))
sums = st.recursive(
    st.one_of(names, numbers),
    lambda inner: st.one_of(
        st.builds(Tree, st.sampled_from(ARITHMETIC), st.tuples(inner, inner)),
        st.builds(Tree, st.just("sign"), st.tuples(inner), st.sampled_from("+-")),
    ),
    max_leaves=5,
)
operands = st.one_of(names, strings, truths, sums)
negated = st.booleans()
simple = st.one_of(
    st.builds(Tree, st.sampled_from(sorted(COMPARISONS)), st.tuples(operands, operands)),
    st.builds(Tree, st.just("BETWEEN"), st.tuples(operands, operands, operands), negated),
    st.builds(
        Tree,
        st.just("IN"),
        st.lists(st.one_of(strings, numbers), min_size=1, max_size=3).flatmap(
            lambda items: st.tuples(names, *map(st.just, items))
        ),
        negated,
    ),
    st.builds(
        Tree,
        st.just("LIKE"),
        st.tuples(names, patterns),
        negated,
    ),
    st.builds(Tree, st.just("IS"), st.tuples(names), negated),
    names,
    truths,
)
conditions = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.builds(Tree, st.sampled_from(["AND", "OR"]), st.tuples(inner, inner)),
        st.builds(Tree, st.just("NOT"), st.tuples(inner)),
        st.builds(Tree, st.sampled_from(["=", "<>", "<"]), st.tuples(inner, inner)),
    ),
    max_leaves=8,
)
messages = st.dictionaries(
    st.sampled_from(NAMES),
    st.sampled_from(["1", "2", "-3", "2.5", "0", "x", "true", "FALSE", "a%b", "it's", ""]),
)


def rendered(tree: Tree, *, full: bool) -> str:
    """Return the text of a condition, with all or only the necessary parentheses."""

    def part(index: int, least: int) -> str:
        operand = tree.parts[index]
        text = rendered(operand, full=full)
        is_bare = BINDING.get(operand.op, 9) >= least and not (full and operand.parts)
        return text if is_bare else f"({text})"

    op = tree.op
    not_ = "NOT " if tree.value is True else ""
    if op == "name":
        return f'"{tree.value}"' if "-" in tree.value else str(tree.value)
    if op == "string":
        return quoted(tree.value)
    if op in ("number", "truth"):
        return str(tree.value).upper()
    if op == "NOT":
        return f"NOT {part(0, 2)}"
    if op == "sign":
        return f"{tree.value}{part(0, 6)}"
    if op == "IS":
        return f"{part(0, 4)} IS {not_}NULL"
    if op == "LIKE":
        return f"{part(0, 4)} {not_}LIKE {part(1, 4)}"
    if op == "IN":
        items = ", ".join(part(index, 4) for index in range(1, len(tree.parts)))
        return f"{part(0, 4)} {not_}IN ({items})"
    if op == "BETWEEN":
        return f"{part(0, 4)} {not_}BETWEEN {part(1, 4)} AND {part(2, 4)}"
    if op in COMPARISONS:
        return f"{part(0, 4)} {op} {part(1, 4)}"
    return f"{part(0, BINDING[op])} {op} {part(1, BINDING[op] + 1)}"


def kind_of(tree: Tree) -> str:
    """Return the type of a tree: a name can be read as any type."""
    if tree.op in ("name", "string", "number"):
        return tree.op
    return "number" if tree.op in (*ARITHMETIC, "sign") else "truth"


def read(tree: Tree, kind: str, headers: Mapping[str, str]) -> Any:
    """Return the value of a tree as one type, or ``None`` if it has none."""
    if kind_of(tree) != "name":
        return evaluated(tree, headers) if kind_of(tree) == kind else None
    text = headers.get(tree.value)
    if text is None or kind == "string":
        return text
    if kind == "truth":
        return {"true": True, "false": False}.get(text.lower())
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return None


def compared(mark: str, left: Tree, right: Tree, headers: Mapping[str, str]) -> Verdict:
    """Compare as numbers for an order or with a number; else as truth values; else as strings."""
    kinds = {kind_of(left), kind_of(right)}
    kind = "string"
    if mark not in ("=", "<>") or "number" in kinds:
        kind = "number"
    elif "truth" in kinds:
        kind = "truth"
    a, b = read(left, kind, headers), read(right, kind, headers)
    return None if a is None or b is None else COMPARISONS[mark](a, b)


def least(*truths: Verdict) -> Verdict:
    """Return AND of truth values, where unknown is between false and true."""
    return min(truths, key=(False, None, True).index)


def opposite(truth: Verdict) -> Verdict:
    """Return NOT of a truth value."""
    return None if truth is None else not truth


def evaluated(tree: Tree, headers: Mapping[str, str]) -> Any:
    """Return the value of a tree, by the definitions: BETWEEN and IN consist of comparisons."""
    op, parts = tree.op, tree.parts
    result: Verdict
    if not parts:
        return tree.value if op != "name" else read(tree, "truth", headers)
    if op in ARITHMETIC or op == "sign":
        operands = [read(part, "number", headers) for part in parts]
        return None if None in operands else calculated(tree, *operands)
    if op in ("AND", "OR", "NOT"):
        truths = [read(part, "truth", headers) for part in parts]
        if op == "NOT":
            return opposite(truths[0])
        if op == "AND":
            return least(*truths)
        return opposite(least(*map(opposite, truths)))
    if op in COMPARISONS:
        return compared(op, parts[0], parts[1], headers)
    if op == "BETWEEN":
        above = compared(">=", parts[0], parts[1], headers)
        result = least(above, compared("<=", parts[0], parts[2], headers))
    elif op == "IN":
        differs = [compared("<>", parts[0], item, headers) for item in parts[1:]]
        result = opposite(least(*differs))
    else:
        text = headers.get(parts[0].value)
        if op == "IS":
            result = text is None
        else:
            result = None if text is None else like(text, parts[1].value, None)
    return opposite(result) if tree.value else result


def calculated(tree: Tree, a: float, b: float = 0) -> float | None:
    """Calculate with known numbers; a quotient of integers is rounded towards zero."""
    if tree.op == "sign":
        return -a if tree.value == "-" else a
    if tree.op == "/":
        if b == 0:
            return None
        return int(a / b) if isinstance(a, int) and isinstance(b, int) else a / b
    return {"+": a + b, "-": a - b, "*": a * b}[tree.op]


@given(tree=conditions, headers=messages, full=st.booleans())
def test_a_selector_is_what_the_definitions_make_of_it(
    *, tree: Tree, headers: dict[str, str], full: bool
) -> None:
    expected = read(tree, "truth", headers)
    assert value(rendered(tree, full=full), headers) is expected
