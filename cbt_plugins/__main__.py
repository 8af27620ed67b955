"""`python -m cbt_plugins -a archive config.yaml`: run a CBT file without a CBT checkout."""

from __future__ import annotations

import sys

from cbt_plugins.cbt.run_loop import main

if __name__ == "__main__":
    sys.exit(main())
