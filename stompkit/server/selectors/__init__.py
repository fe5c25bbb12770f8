"""Message selectors: the conditions of the JMS specification, over the headers of a message.

The language is that of JMS 1.1, section 3.8.1.1, itself a subset of SQL-92's conditions:
comparisons, arithmetic, ``BETWEEN``, ``IN``, ``LIKE``, ``IS NULL``, ``AND``, ``OR`` and ``NOT``.
Keywords are the same in any case, names of headers are not.

*Names* are letters, digits, ``_`` and ``$``. ``a-b`` is a difference, as in JMS; any other header
is named in double quotes: ``"content-type" = 'text/plain'``, with ``""`` for a quote in it. A
selector that begins with Artemis's ``hyphenated_props:`` has names with hyphens between letters:
there ``a-b`` is a name, and ``a - b`` a difference. JMS's own names stand for STOMP's headers, see
``_STANDS_FOR`` in ``_values``.

*Types.* Headers are text, and what they are compared with says how they are read: as a number
beside a number or arithmetic, as ``true`` or ``false`` in any case beside a condition or where a
condition is expected, as they are beside a string or another header. ``<``, ``<=``, ``>``, ``>=``
and ``BETWEEN`` are for numbers only, so there two headers are numbers. Numbers are decimal; two
integers have an integer quotient, rounded towards zero, as in Java.

*Unknown* is a comparison with a header that is missing, or that can't be read as it has to be;
one of different types, or of the order of strings (false in JMS); what a division by zero or
too large a number takes part in. ``NOT``, ``AND`` and ``OR`` go on with three values, and only a
message for which the whole is true is taken.
"""

from stompkit.server.selectors.errors import SelectorError
from stompkit.server.selectors.selector import Selector, with_hyphens

__all__ = ["Selector", "SelectorError", "with_hyphens"]
