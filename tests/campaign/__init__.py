"""A campaign of fault injection: clients use a broker that fails, and no message may be lost.

A seed determines the actions of the clients and the faults of the broker. Everything that the
clients see is recorded as a history (:mod:`tests.campaign.history`). In the end the queues are
drained, and a checker (:mod:`tests.campaign.checker`) verifies that the history keeps every
guarantee. It does not depend on the broker's implementation.

::

    python -m tests.campaign                             # 1,000 seeds, or the rest of them
    python -m tests.campaign --seeds 17                  # one of them, again
    python -m tests.campaign --only power --minutes 5
    python -m tests.campaign lease                       # brokers with a lease, on hosts
    python -m tests.campaign report                      # a table and a diagram of the results
"""
