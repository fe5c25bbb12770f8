"""Fetches the servers that people run today into a cache folder: ``make servers``.

It is among the tests since nobody else needs it: users of the package launch what they have
installed, and may point ``STOMPKIT_SERVERS`` at a folder that was filled from a checkout. How a
fetched server is recorded and run is ``stompkit.testing._launching.fetched``.
"""
