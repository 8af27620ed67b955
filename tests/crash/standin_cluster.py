"""A stand-in cluster in a folder, and programs that run against it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import standin
import standin_world
from waiting import end_of, wait_for

PROJECT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
PROGRAMS = ("ceph", "ssh", "pdsh", "systemctl", "ip", "radosgw-admin", "collectl")
MODES = ("kill", "term", "twice", "fail", "hang")
#: writes down what /proc says of it and becomes the program: what the stand-in may kill
_KNOWN = 'cat /proc/$$/stat > "$0" && exec "$@"'
#: a call's number, or a program and words of its command; and what happens at it
Accident = Optional[Tuple[Union[int, str], str]]


class StandIn:
    """Commands on PATH that play a cluster; each program that is started has its own list of calls."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.archive = folder / "archive"
        self.archive.mkdir(parents=True)
        (folder / "bin").mkdir()
        for name in PROGRAMS:
            program = folder / "bin" / name
            # without site and environment, and compiled before: it is called a hundred thousand times in a sweep
            program.write_text(
                f"#!{os.path.realpath(sys.executable)} -IS\nimport sys\nsys.path.insert(0, {str(HERE)!r})\n"
                "import standin\nsys.exit(standin.main())\n"
            )
            program.chmod(0o755)
        standin.write(str(folder), "state.json", standin_world.new_state())
        self.before = self.state()
        self._runs = 0

    def state(self) -> Any:
        return json.loads((self.folder / "state.json").read_text())

    def changes(self) -> List[str]:
        """What is otherwise than at the startning."""
        now = self.state()
        keys = [key for key in now if key != "gids" and now[key] != self.before[key]]
        return [f"{key}: {self.before[key]!r} -> {now[key]!r}" for key in keys]

    def calls(self) -> List[Dict[str, Any]]:
        """Of the program that was started last."""
        path = self.folder / "runs" / str(self._runs) / "calls.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]  # the last one may be half written

    def run(
        self, line: Sequence[str], at: Accident = None, environment: Optional[Mapping[str, str]] = None
    ) -> subprocess.CompletedProcess[str]:
        """A program to its end. Its calls that are still under way then are not waited for."""
        self._runs += 1
        mine = self.folder / "runs" / str(self._runs)
        mine.mkdir(parents=True)
        known = {
            **os.environ,
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "STANDIN": str(self.folder),
            "STANDIN_RUN": str(self._runs),
            "STANDIN_AT": f"{at[0]}:{at[1]}" if at else "0:",
            "PYTHONPATH": str(PROJECT),
            **(environment or {}),
        }
        started = ["sh", "-c", _KNOWN, str(mine / "stat"), *line]
        # to files: what a killed program has left running would hold a pipe open
        with open(mine / "out", "w") as out, open(mine / "err", "w") as err:
            running = subprocess.Popen(started, env=known, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        try:
            status = end_of(running, 240.0, lambda: len(self.calls()))
        finally:
            if running.poll() is None:
                running.kill()
                running.wait()
        texts = [(mine / name).read_text() for name in ("out", "err")]
        return subprocess.CompletedProcess(started, status, *texts)

    def alive(self) -> List[str]:
        """Command lines of the processes that programs have left."""
        mark = f"STANDIN={self.folder}\0".encode()
        found = []
        for process in Path("/proc").iterdir():
            try:
                if process.name.isdigit() and mark in (process / "environ").read_bytes():
                    found.append((process / "cmdline").read_text().replace("\0", " "))
            except OSError:
                continue  # ended meanwhile
        return found

    def settle(self) -> List[str]:
        """Wait until all that was under way has come to pass; what is there still when nothing moves any more."""
        with contextlib.suppress(AssertionError):
            wait_for(lambda: not self.alive(), "what was under way", 60.0, self.alive)
        return self.alive()


def part_of(calls: int, default: str) -> List[int]:
    """The numbers of the calls that are tried: CRASH_PART=3/8 is every eighth of them from the third on."""
    part, _, parts = os.environ.get("CRASH_PART", default).partition("/")
    return list(range(int(part), calls + 1, int(parts)))
