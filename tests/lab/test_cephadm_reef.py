"""What does not depend on the release, on a cluster that cephadm 18.2.7 has made, as most clusters of today.

Half an hour on two busy cores, and 3 GB of cache for the image:

    CBT_PLUGINS_LONG=1 python -m pytest tests/lab/test_cephadm_reef.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Iterator

import pytest
from cephadm_cluster import FIRST, NEW
from container_faults import FAULTS
from container_lab import Containers, container_lab
from container_runs import (
    held_killed_and_undone,
    hold_and_undo_each_kind,
    run_the_file_of_init,
    run_the_file_of_sites,
    run_with_an_osd_stopped,
)

pytestmark = [pytest.mark.lab, pytest.mark.long]

#: faults by units, or commands of the release; the rest of them act on nodes and OSD maps
OF_RELEASE = ("crash of an RGW", "crash of an OSD", "failover of the leading mon", "failover of the active mgr")


@pytest.fixture(scope="module")
def containers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Containers]:
    with container_lab(NEW, tmp_path_factory) as cluster:
        yield cluster


def test_the_cluster_began_with_this_release(containers: Containers) -> None:
    assert f"version {NEW.version} " in containers.sh(FIRST, "cephadm version")
    born = containers.ceph("mon dump")["min_mon_release_name"]
    assert (born, list(containers.ceph("versions")["overall"].values())) == (NEW.release, [13])


def test_a_cycle_with_an_osd_stopped(containers: Containers, tmp_path: Path) -> None:
    run_with_an_osd_stopped(containers, tmp_path)


def test_init_writes_a_file_that_runs(containers: Containers, tmp_path: Path) -> None:
    run_the_file_of_init(containers, tmp_path)


def test_the_file_of_the_page_runs_to_its_report(containers: Containers, tmp_path: Path) -> None:
    run_the_file_of_sites(containers, tmp_path)


def test_each_kind_has_its_effect_and_is_undone_after_a_kill(containers: Containers) -> None:
    hold_and_undo_each_kind(containers)


@pytest.mark.parametrize("name", OF_RELEASE)
def test_a_fault_is_undone_after_a_kill(containers: Containers, name: str) -> None:
    containers.clean()
    held_killed_and_undone(containers, FAULTS[name](containers))
