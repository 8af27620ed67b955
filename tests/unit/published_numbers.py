"""The published numbers: read, calculated anew and judged."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

import yaml

from cbt_plugins.models import capacity, closed_loop, network, pools
from cbt_plugins.models.pools import Redundancy

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "tests" / "data" / "published" / "published_numbers.yaml"
VERDICTS = ("ok", "rounded", "mistake", "derived")
_MODELS = {
    module.__name__.rpartition(".")[2]: module
    for module in (capacity, closed_loop, network, pools)
}


@dataclass(frozen=True)
class Row:
    """A number of a study; see the head of the YAML."""

    id: str
    source: str
    says: str
    inputs: Mapping[str, Any]
    model: str
    exact: float
    verdict: str
    published: Optional[float] = None
    digit: float = 0.0
    tolerance: Optional[float] = None
    unit: str = ""
    note: str = ""
    shown: Optional[List[str]] = None  # as printed, where the unit alone does not say it

    def value(self) -> float:
        """What the model gives."""
        names: Dict[str, Any] = {**_MODELS, **self.inputs}
        if "pool" in names:
            names["pool"] = Redundancy.parse(names["pool"])
        return float(eval(self.model, {"__builtins__": {"sum": sum}}, names))

    def judged(self) -> str:
        """The verdict that the numbers themselves give."""
        if self.published is None:
            return "derived"
        off = abs(self.value() - self.published)
        if off <= self.digit / 2 * (1 + 1e-9):
            return "ok"
        return "rounded" if self.tolerance is not None and off <= self.tolerance else "mistake"


def rows() -> List[Row]:
    """All of them, in the order of the file."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # each worker reads them
    return [Row(**entry) for entry in yaml.load(FILE.read_text(encoding="utf-8"), loader)]
