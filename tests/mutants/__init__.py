"""Mutation testing: a fixed set of small faults, and the tests that find them.

The set is drawn once, by seed, from one commit, and kept in ``mutants.json``. It answers one
question: does a changed suite still find the faults that it found before? ::

    python -m tests.mutants draw --seed 26 --count 330 --commit c7aadf1
    python -m tests.mutants map --coverage DATA --tree BASE --times JUNIT.xml --out map.json
    python -m tests.mutants run --tree BASE --map map.json --out before.jsonl
    python -m tests.mutants confirm --results before.jsonl --tree . --map map.json

Each mutant is kept as text with its function, not as a line number, so that it can be applied to a
later commit. No developer's tree is changed: mutants are applied in a clone of one commit.

**Why no existing tool.** Judged by their documentation; neither was run on this product. mutmut 3
puts all mutants of a function into a copy of the sources and selects one at run time. Functions are
not the same objects then, even without a mutant: this matters to tests that inspect signatures,
count instructions, or compile the sources. It selects tests by what one process executes, while
most tests here start brokers as processes. It numbers mutants within a function. Cosmic Ray mutates
sources on disk, as this package does. However, its mutants are positions in one tree, and it runs
one test command for all of them; the whole suite takes 40 minutes. Neither can apply a mutant to
another commit, or compare two suites. The operators, which they would save, are the smaller part.

Modules, in the order of reading: :mod:`~tests.mutants.mutant`, a mutant and its place in a tree;
:mod:`~tests.mutants.operators` and :mod:`~tests.mutants.drawing`; :mod:`~tests.mutants.choosing`,
the tests for a mutant; :mod:`~tests.mutants.copies` and :mod:`~tests.mutants.sessions`, a copy of a
tree and a run of pytest in it; :mod:`~tests.mutants.running` and :mod:`~tests.mutants.confirming`.
"""
