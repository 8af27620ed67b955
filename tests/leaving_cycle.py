"""A stand-in for `python -m cbt_plugins` and for `cbt-tools undo --data`: a cycle that leaves something on a cluster.

The cluster is the folder LEAVING_CLUSTER. A cycle puts a file there and ends with status 1; with LEAVING_HANGS it
waits for ever. `undo` removes the file of its archive; it fails with the status in LEAVING_CLUSTER/undo-status, if any.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

#: ends as the real program does: by that a trial knows the program that undoes
PROGRAM = f"{sys.executable} -S -E {__file__} -m cbt_plugins"


def main() -> None:
    cluster, words = Path(os.environ["LEAVING_CLUSTER"]), sys.argv[2:]
    if words[:3] == ["cbt_plugins.tools", "undo", "--data"]:
        refusal = cluster / "undo-status"
        if refusal.exists():
            print(f"Error: {'x' * 600} the end")
            sys.exit(int(refusal.read_text()))
        for path in cluster.glob("left-*"):
            if path.read_text() in (words[3], words[3].replace(".partial-1/", "/").replace(".failed-1/", "/")):
                path.unlink()
        with open(cluster / "undone", "a") as log:
            log.write(f"{words[3]}\n")
        return
    archive = Path(words[2])
    (archive / "results" / "00000000" / "id-1a2b3c4d").mkdir(parents=True)
    (cluster / f"writing-{os.getpid()}").write_text(str(archive))
    (cluster / f"writing-{os.getpid()}").rename(cluster / f"left-{os.getpid()}")  # a kill comes once it is there
    while os.environ.get("LEAVING_HANGS"):
        time.sleep(0.05)
    sys.exit(1)


if __name__ == "__main__":
    main()
