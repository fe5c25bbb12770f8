"""A campaign for brokers with a lease in PostgreSQL, each on a host of its own.

The hosts are network namespaces: two brokers, a PostgreSQL server, its synchronous replica, and the
clients. A seed draws one to three faults of brokers, networks, clocks and the database::

    python -m tests.campaign lease --seeds 1-300
    python -m tests.campaign lease --seeds 17 --again
"""
