"""Run pytest on compiled modules: ``python -m tests.suite.compiled ARGUMENT...``.

Where they can't be compiled, say why, and run it on Python.
"""

from __future__ import annotations

import os
import subprocess
import sys

from benchmarks._compiled import Uncompilable, environment


def main() -> int:
    """Compile, or wait for who does it, and become pytest; return the exit status if it cannot."""
    try:
        variables = {**os.environ, **environment()}
    except Uncompilable as reason:
        print(f"not compiled: {reason}", flush=True)
        if os.environ.get("STOMPKIT_MQ_MISSING") == "fail":
            return 1
        os.execv(sys.executable, [sys.executable, "-m", "pytest", *sys.argv[1:]])
    # -P: the checkout would be first on the path, and is not compiled.
    python = [sys.executable, "-P"]
    check = [*python, "-c", "import stompkit; assert stompkit.is_compiled()"]
    subprocess.run(check, env=variables, check=True)
    os.execve(sys.executable, [*python, "-m", "pytest", *sys.argv[1:]], variables)


if __name__ == "__main__":
    sys.exit(main())
