"""CBT's main branch, and the built-in loop, on a machine without pdsh."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cbt_trees import YEARS

from .conftest import Cbt
from .test_eras import OF_CBT, SWEEP, same_without_us

pytestmark = [
    pytest.mark.upstream,
    pytest.mark.parametrize("tree", [pytest.param(YEARS[-1], id="main")], indirect=True),
    pytest.mark.usefixtures("no_pdsh"),
]

#: pdsh and the programs that come with it
PDSH = ("pdsh", "pdcp", "rpdcp")
#: the last word of Python's error for a program that is not on PATH
MISSING = "FileNotFoundError: [Errno 2] No such file or directory: 'pdsh'"
#: a command of a node runs here, in a folder of the node's own
SSH = """\
#!/bin/sh
while [ "$1" != -- ]; do shift; done
exec sh -c "$(printf %s "$3" | sed "s#/node/#/$2/#g")"
"""


@pytest.fixture
def no_pdsh(cbt: Cbt) -> None:
    """PATH has all programs of this machine except those of pdsh; ssh runs commands on this machine."""
    programs = cbt.tmp / "programs"
    programs.mkdir()
    for name in PDSH:
        (cbt.tmp / "stubs" / name).unlink()
    folders = [Path(folder) for folder in os.environ["PATH"].split(":") if Path(folder).is_dir()]
    paths = {path.name: path for folder in reversed(folders) for path in folder.iterdir()}
    for name in paths.keys() - set(PDSH):
        (programs / name).symlink_to(paths[name])
    (cbt.tmp / "stubs" / "ssh").write_text(SSH)
    cbt.environment["PATH"] = f"{cbt.tmp / 'stubs'}:{programs}"


def test_cbts_own_benchmark_fails_as_without_us(cbt: Cbt, tree: Path) -> None:
    _, _, output, _, commands = same_without_us(cbt, tree, cbt.config(OF_CBT, iterations=1), 1)
    assert output.count(MISSING) == 2 and not any("hsbench" in line for line in commands)


def test_a_benchmark_of_ours_runs_until_cbt_itself_needs_pdsh(cbt: Cbt, tree: Path) -> None:
    """CBT adds its profile collectl to every file, and starts it by pdsh; the built-in loop starts it by ssh."""
    whole = cbt.cbt(tree, cbt.config(SWEEP, iterations=1), "whole")
    assert whole.status == 0 and "2 of 2 planned runs executed" in whole.output, whole.output
    profiles = {name: {"nodes": ["clients"]} for name in ("collectl", "resources")}
    config = cbt.config({"example": {"watch": True}}, profiles, iterations=1, tmp_dir=str(cbt.tmp / "node"))
    through_cbt = cbt.cbt(tree, config, "cbt")
    assert through_cbt.status == 1 and through_cbt.output.rstrip().endswith(MISSING), through_cbt.output
    built_in = cbt.loop(config, "built-in")
    assert built_in.status == 0 and "1 of 1 planned runs executed" in built_in.output, built_in.output
    folders = built_in.runs()[0].glob("monitors/resources.*")
    assert {folder.name for folder in folders if list(folder.glob("*.jsonl"))} == {
        "resources.192.0.2.2", "resources.192.0.2.3"
    }
