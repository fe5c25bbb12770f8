"""A campaign of faults: clients at work, a broker to which things happen, and nothing lost.

A seed says what clients do and what happens to the broker. While they are at it, everything that
they see is written down as a history (:mod:`tests.campaign.history`). In the end the queues are
drained, and a checker (:mod:`tests.campaign.checker`) looks whether the history keeps every
promise. It knows nothing of how the broker works.

::

    python -m tests.campaign                             # 1,000 seeds, or what is left of them
    python -m tests.campaign --seeds 17                  # one of them, again
    python -m tests.campaign --only power --minutes 5
    python -m tests.campaign report                      # a table and a picture of what was found
"""
