"""A STOMP server written from the specifications alone, with switches for faults and variants.

It shares no code with the package, so that a misinterpretation of the specifications in the package
does not appear on both sides. A server has at most one switch: see :mod:`.switches`.

Bytes are read and written as :mod:`.frames` by a :mod:`.connection`, whose session executes the
:mod:`.commands`. They send messages to :mod:`.destinations`.
"""
