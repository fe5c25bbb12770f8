"""Words in messages."""

from __future__ import annotations

import pytest

from stompkit._common.spelling import amount, with_article


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 cases"), (1, "1 case"), (2, "2 cases"), (1_000, "1,000 cases")]
)
def test_a_number_has_its_noun_in_singular_or_plural(number: int, text: str) -> None:
    assert amount(number, "case") == text


def test_an_article_fits_its_word() -> None:
    assert with_article("activemq") == "an activemq"
    assert with_article("ERROR") == "an ERROR"
    assert with_article("rabbitmq") == "a rabbitmq"
    assert with_article("") == "a "
