"""A STOMP client written from the specifications alone, with switches for faults and variants.

It behaves as ``docs/howto/conformance-clients.rst`` requires of a program, and shares no code with
the package. A client has at most one switch: see :mod:`.switches`.

Bytes are read and written as :mod:`.frames` by a :mod:`.stream`. A :mod:`.session` connects, and an
:mod:`.application` executes its messages; a :mod:`.client` has one session after the other.
"""
