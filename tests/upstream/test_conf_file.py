"""CBT's main branch, and the built-in loop, on a machine without a ceph.conf."""

from __future__ import annotations

from pathlib import Path

import pytest
from cbt_trees import YEARS

from .conftest import PROJECT, Cbt


@pytest.mark.upstream
@pytest.mark.parametrize("tree", [pytest.param(YEARS[-1], id="main")], indirect=True)
def test_cbt_itself_needs_a_ceph_conf_on_the_machine_that_leads_the_run(cbt: Cbt, tree: Path) -> None:
    config = cbt.config({"example": {"size": 4}}, iterations=1)
    missing = cbt.tmp / "ceph.conf"
    missing.unlink()
    error = "Was not able to access conf file: {}"
    through_cbt = cbt.cbt(tree, config, "cbt")
    assert through_cbt.status == 1 and error.format(missing) in through_cbt.output
    built_in = cbt.loop(config, "built-in")
    assert built_in.status == 0 and "1 of 1 planned runs executed" in built_in.output, built_in.output
    for page in ("CBT.md", "TROUBLESHOOTING.md"):
        assert f"`{error.format('/etc/ceph/ceph.conf')}`" in (PROJECT / "docs" / page).read_text()
