"""The command ``stompkit``, also ``python -m stompkit``."""

import sys

from stompkit._commands import main

if __name__ == "__main__":
    sys.exit(main())
