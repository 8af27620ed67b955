"""Verbs that print results: their forms, and what they are called with."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, List

import archive_builder as made

CONFIGS = Path(__file__).parents[1] / "benchmark_configs"
#: verb -> the forms that it has
FORMS: Dict[str, List[str]] = {
    "report": ["text", "json", "csv", "md", "html"],
    "compare": ["text", "json", "csv", "md", "html"],
    "gate": ["text", "json", "csv", "md", "html"],
    "history": ["text", "json", "csv", "md", "html"],
    "sql": ["text", "json", "csv", "md"],
    "export": ["csv", "prometheus"],
    "size": ["text", "json"],
    "plan": ["text", "json"],
}


def words_with(place: Path) -> Dict[str, List[str]]:
    """Return what each verb is called with; its archives are made in a folder."""
    run = made.small(place / "a")
    made.renamed(made.small(place / "b"), "b")
    both = [str(place / "a"), str(place / "b")]
    return {
        "report": [str(run)],
        "compare": both,
        "gate": [*both, "--limit", "obj_per_s=5%"],
        "history": both,
        "sql": [both[0], "SELECT phase, op, obj_per_s FROM ops ORDER BY ALL"],
        "export": [both[0]],
        "size": ["workers", "--workers", "8", "--latency", "10ms"],
        "plan": [str(CONFIGS / "quickstart.yaml")],
    }
