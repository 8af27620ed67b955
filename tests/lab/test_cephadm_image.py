"""The build of the image for tests/lab/test_cephadm.py: a broken build fails, and a machine without a mirror skips."""

from __future__ import annotations

from typing import Any

import pytest
from cephadm_cluster import run_build_step


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        (pytest.skip, "E: Failed to fetch http://mirror/d.deb  Temporary failure resolving 'mirror'"),
        (pytest.skip, "Err:1 http://mirror InRelease: Could not connect to mirror:80 (10.0.0.1). - connect (111"),
        (pytest.skip, "NewConnectionError('<...>: Failed to establish a new connection: [Errno 101]')"),
        (pytest.skip, "tar: ./usr/bin/ceph-osd: Cannot write: No space left on device"),
        (pytest.fail, "E: Unable to locate package ceph-mgr-cephadm"),
        (pytest.fail, "E: Sub-process /usr/bin/dpkg returned an error code (1)"),
        (pytest.fail, "ERROR: No matching distribution found for remoto==1.2.1"),
        (pytest.fail, "E: Failed to fetch http://mirror/ceph.deb  404  Not Found"),
    ],
)
def test_only_a_machine_that_lacks_network_mirror_or_space_is_skipped(outcome: Any, text: str) -> None:
    with pytest.raises(outcome.Exception, match="no image of Ceph could be made: sh: exit status 100: "):
        run_build_step(["sh", "-c", 'echo "$0" >&2; echo more >&2; exit 100', text])
    run_build_step(["true"])
