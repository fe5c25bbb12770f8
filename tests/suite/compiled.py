"""Run pytest on compiled modules: ``python -m tests.suite.compiled ARGUMENT...``.

If compiling is not possible, print the reason and run it on Python modules.
"""

from __future__ import annotations

import os
import subprocess
import sys

from benchmarks._compiled import Uncompilable, environment


def main() -> int:
    """Become pytest when the modules are compiled; return an exit status if that is impossible."""
    try:
        variables = {**os.environ, **environment()}
    except Uncompilable as reason:
        print(f"not compiled: {reason}", flush=True)
        if os.environ.get("STOMPKIT_MQ_MISSING") == "fail":
            return 1
        os.execv(sys.executable, [sys.executable, "-m", "pytest", *sys.argv[1:]])
    # -P: otherwise the checkout, which is not compiled, would be first on the path.
    python = [sys.executable, "-P"]
    check = [*python, "-c", "import stompkit; assert stompkit.is_compiled()"]
    subprocess.run(check, env=variables, check=True)
    os.execve(sys.executable, [*python, "-m", "pytest", *sys.argv[1:]], variables)


if __name__ == "__main__":
    sys.exit(main())
