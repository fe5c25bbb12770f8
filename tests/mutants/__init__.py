"""Mutation testing: a fixed set of small faults, and the tests that find them.

The set is drawn once, by seed, from one commit, and kept in ``mutants.json``. It answers one
question: does a suite that was changed still find what it found before? ::

    python -m tests.mutants draw --seed 26 --count 330 --commit c7aadf1
    python -m tests.mutants map --coverage DATA --tree BASE --times JUNIT.xml --out map.json
    python -m tests.mutants run --tree BASE --map map.json --out before.jsonl
    python -m tests.mutants confirm --results before.jsonl --tree . --map map.json

Each mutant is kept as text with its function, not as a line number, so that it can be applied to a
later commit. No developer's tree is changed: mutants are applied in a clone of one commit.

**Why no existing tool.** mutmut 3 puts all mutants of a function behind a trampoline, in a copy of
the sources, and chooses one by an environment variable. That is fast, but each function is another
one even without a mutant: tests that look at signatures or at the module of a function, that count
instructions, or compile the sources, fail. It mutates functions only, numbers its mutants by their
order in a function, and runs tests in forks of one process that has imported the sources already.
Cosmic Ray mutates sources on disk, as this package does, and a mutant is a position in them; it
runs one command for all of them, which here takes 40 minutes for each. Neither can apply a mutant
to another commit, choose tests by what subprocesses execute (most tests here start brokers), or
compare two suites. The part that they would save, the operators, is the smaller one.

Modules, in the order of reading: :mod:`~tests.mutants.mutant`, what a mutant is and how it is found
in a tree; :mod:`~tests.mutants.operators` and :mod:`~tests.mutants.drawing`;
:mod:`~tests.mutants.choosing`, which tests a mutant needs; :mod:`~tests.mutants.copies` and
:mod:`~tests.mutants.sessions`, a copy of a tree and a run of pytest in it;
:mod:`~tests.mutants.running` and :mod:`~tests.mutants.confirming`.
"""
