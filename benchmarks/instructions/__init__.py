"""How many instructions of the processor a message takes: a measure that no other load disturbs.

``python -m benchmarks.instructions`` counts them with valgrind and compares them with a baseline.
"""
