"""Selectors: the parser raises one kind of error, and a parsed selector accepts any headers."""

from __future__ import annotations

from typing import Final

from fuzz._driver import main
from stompkit.server.selectors import Selector, SelectorError

__all__ = ["SEEDS", "check"]

#: Separates the selector and the values of headers.
_BETWEEN: Final = "\n"
_NAMES: Final = ("a", "b", "JMSPriority", "persistent", "content-type")

#: Examples of JMS 1.1, section 3.8.1, and extensions.
_SELECTORS: Final = (
    "JMSType = 'car' AND color = 'blue' AND weight > 2500",
    "age BETWEEN 15 AND 19",
    "age >= 15 AND age <= 19 OR age NOT BETWEEN 1 AND -1",
    "Country IN ('UK', 'US', 'France')",
    "Country NOT IN (' UK', 1, -2.5e3)",
    "phone LIKE '12%3'",
    "word LIKE 'l_se'",
    "underscored LIKE '\\_%' ESCAPE '\\'",
    "phone NOT LIKE '12%3'",
    "prop_name IS NULL OR prop_name IS NOT NULL",
    "NOT (a = 1) AND b <> 'x''y' OR TRUE",
    "a + b * 2 - -3 / (4.5E1 - 1) >= +7",
    '"content-type" = \'text/plain\' AND """" IS NULL',
    "JMSPriority > 4 and JMSDeliveryMode = 'PERSISTENT'",
    "((((a))))",
    "a LIKE '%a%b%c%_%'",
    "a = b AND a < b AND a = true AND $x_1 = false",
    "1 / 0 = 1 OR 9999999999 * 1e308 > 1",
)
_VALUES: Final = ("", "1\n2", "text\ntrue\n4\ntrue\ntext/plain", "1e308\n-1.5\n9\n\nabcabc")
SEEDS: Final = tuple(
    f"{selector}\n{values}".encode() for selector in _SELECTORS for values in _VALUES
)


def check(data: bytes) -> None:
    """Parse a selector, and evaluate it for headers."""
    # As decoded from frames with the highest tolerance.
    text, *values = data.decode("utf-8", "surrogateescape").split(_BETWEEN)
    try:
        selector = Selector(text)
    except SelectorError as error:
        assert 0 <= error.position <= len(text)
        assert error.message and "\n" not in str(error)
        return
    assert selector.text == text
    headers = dict(zip(_NAMES, values, strict=False))
    taken = selector.takes(headers)
    assert taken in (True, False)
    # The negation is true only if the result is not unknown, and then the selector is not true.
    try:
        opposite = Selector(f"NOT ({text})")
    except SelectorError:
        return  # the negation is nested too deeply, or too long
    assert not (taken and opposite.takes(headers))
    assert Selector(f"({text})").takes(headers) == taken
    selector.takes({name: name * 100 for name in _NAMES})


if __name__ == "__main__":
    main(__file__)
