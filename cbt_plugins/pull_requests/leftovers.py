"""What a verdict may leave on the machine: processes, which are known by the trial folder in their environment.

A user has one verdict on a machine at a time. The file of that lock names its folder, so that the next verdict ends
what a killed one has left, whatever folder it has itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
from pathlib import Path
from typing import Iterator, List

from cbt_plugins.archive_files import open_to_append
from cbt_plugins.campaigns.schedule import CampaignError
from cbt_plugins.campaigns.trial import living_processes, trial_folder_of
from cbt_plugins.polling import wait_until
from cbt_plugins.programs import cache_dir

_GRACE, _POLL = 10.0, 0.1


@contextlib.contextmanager
def hold_machine(folder: Path) -> Iterator[None]:
    """Hold the machine, free of what an earlier verdict and this one have started. Raises CampaignError, OSError."""
    path = cache_dir() / "pr.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_to_append(path, 0o600) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            running = path.read_text(errors="replace")
            text = f"another `cbt-tools pr` runs on this machine, in {running}: wait until that command ends"
            raise CampaignError(text) from None
        earlier = path.read_text(errors="replace")
        if earlier:
            end_processes(Path(earlier))
        _write(file.fileno(), str(folder))
        try:
            yield
        finally:
            end_processes(folder)
            _write(file.fileno(), "")


def _write(descriptor: int, text: str) -> None:
    os.ftruncate(descriptor, 0)
    os.write(descriptor, text.encode())
    os.fsync(descriptor)


def end_processes(folder: Path) -> List[int]:
    """End all processes that a step below a folder has started, daemons too; return those that would not end."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in processes(folder):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        left = wait_until(lambda: processes(folder), _GRACE, _POLL, met=lambda pids: not pids)
    return left


def processes(folder: Path) -> List[int]:
    """Return the processes that have a folder, or one below it, as the folder of their step."""
    return [
        int(entry.name)
        for entry, _ in living_processes()
        if f"{trial_folder_of(entry)}/".startswith(f"{folder}/") and entry.name != str(os.getpid())
    ]
