"""Message selectors: the conditions of the JMS specification, over the headers of a message.

The language is that of JMS 1.1, section 3.8.1.1, which is a subset of SQL-92's conditions:
comparisons, arithmetic, ``BETWEEN``, ``IN``, ``LIKE``, ``IS NULL``, ``AND``, ``OR`` and ``NOT``.
Keywords are case-insensitive, names of headers are case-sensitive.

*Names* consist of letters, digits, ``_`` and ``$``. ``a-b`` is a difference, as in JMS. Any other
header is named in double quotes: ``"content-type" = 'text/plain'``, with ``""`` for a quote in it.
In a selector that begins with Artemis's ``hyphenated_props:``, names may have hyphens between
letters: there ``a-b`` is a name, and ``a - b`` a difference. JMS's own names represent STOMP's
headers, see ``_STANDS_FOR`` in ``values``.

*Types.* Headers are text, and the other operand determines their type. Beside a number or
arithmetic they are numbers. Beside a condition, or where a condition is expected, they are ``true``
or ``false`` in any case. Beside a string or another header they are strings. The operators ``<``,
``<=``, ``>``, ``>=`` and ``BETWEEN`` are for numbers only, so that two headers are compared as
numbers there. Numbers are decimal; the quotient of two integers is an integer, rounded towards
zero, as in Java.

*Unknown* is the result of a comparison with a missing header, or with one that cannot be converted.
The same applies to operands of different types, to the order of strings (false in JMS), to a
division by zero and to numbers that are too large. ``NOT``, ``AND`` and ``OR`` use three-valued
logic. A message is selected only if the whole condition is true.
"""

from stompkit.server.selectors.errors import SelectorError
from stompkit.server.selectors.selector import Selector, with_hyphens

__all__ = ["Selector", "SelectorError", "with_hyphens"]
