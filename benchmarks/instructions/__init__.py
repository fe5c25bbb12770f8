"""The number of processor instructions for a message: a measure that other load does not disturb.

``python -m benchmarks.instructions`` counts them with valgrind and compares them with a baseline.
"""
