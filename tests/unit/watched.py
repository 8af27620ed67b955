"""What tests of monitors look at: processes, and files that grow."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Callable, Dict, List


def wait_for(condition: Callable[[], Any]) -> Any:
    until = time.monotonic() + 60  # a busy machine is slow, and this ends with the condition
    while time.monotonic() < until:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError("not within 60 s")


def lines(path: Path) -> List[Dict[str, Any]]:
    # the last line may still be under way
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
