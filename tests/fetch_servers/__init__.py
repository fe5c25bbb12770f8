"""Download current servers into a cache folder: ``make servers``.

It is among the tests since only they need it: users of the package launch installed servers, and
may point ``STOMPKIT_SERVERS`` at a folder that was filled from a checkout. The module
``stompkit.testing.launching.fetched`` records and runs downloaded servers.
"""
