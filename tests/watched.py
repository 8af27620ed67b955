"""What tests of monitors look at: processes, and files that grow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List


def lines(path: Path) -> List[Dict[str, Any]]:
    # the last line may still be under way
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
