"""Run pytest on compiled modules: ``python -m tests.suite.compiled ARGUMENT...``."""

from __future__ import annotations

import os
import subprocess
import sys

from benchmarks._compiled import Uncompilable, environment

#: Exit status of pytest when there were no tests to run.
_NO_TESTS = 5


def main() -> int:
    """Compile, or wait for who does it, and become pytest; return the exit status if it cannot."""
    try:
        variables = {**os.environ, **environment()}
    except Uncompilable as reason:
        print(f"skipped: {reason}")
        return 1 if os.environ.get("STOMPKIT_MQ_MISSING") == "fail" else _NO_TESTS
    # -P: the checkout would be first on the path, and is not compiled.
    python = [sys.executable, "-P"]
    check = [*python, "-c", "import stompkit; assert stompkit.is_compiled()"]
    subprocess.run(check, env=variables, check=True)
    os.execve(sys.executable, [*python, "-m", "pytest", *sys.argv[1:]], variables)


if __name__ == "__main__":
    sys.exit(main())
