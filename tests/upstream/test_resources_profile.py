"""The resources profile under an unmodified cbt.py, before and after monitoring became a package."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Cbt

pytestmark = pytest.mark.upstream


@pytest.mark.parametrize("tree", ["2021", "master", "newest"], indirect=True)
def test_the_resources_profile_runs_and_its_samples_arrive(cbt: Cbt, tree: Path) -> None:
    about, named, *_, last = cbt.watched(tree, "resources", "{node}.jsonl", interval=0.1)
    assert about["version"] == 2 and named["names"]["k"] and last["end"] == "told"
    (mine,) = [its for its in named["names"]["d"].values() if its["class"] == "monitor"]
    assert not Path(f"/proc/{mine['pid']}").exists()
