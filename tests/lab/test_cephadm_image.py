"""The build of the image for tests/lab/test_cephadm.py: a broken build fails, and a machine without a mirror skips."""

from __future__ import annotations

import pytest
from cephadm_cluster import run_build_step


@pytest.mark.parametrize(
    "text",
    [
        "E: Failed to fetch http://deb.debian.org/d.deb  Temporary failure resolving 'deb.debian.org'",
        "Err:1 http://mirror bookworm InRelease: Could not connect to mirror:80 (10.0.0.1). - connect (111: Connection",
        "NewConnectionError('<...>: Failed to establish a new connection: [Errno 101] Network is unreachable')",
        "tar: ./usr/bin/ceph-osd: Cannot write: No space left on device",
    ],
)
def test_a_machine_without_network_mirror_or_space_is_skipped(text: str) -> None:
    with pytest.raises(pytest.skip.Exception, match="no image of Ceph could be made: sh: exit status 100: "):
        run_build_step(["sh", "-c", 'echo "$0" >&2; echo more >&2; exit 100', text])


@pytest.mark.parametrize(
    "text",
    [
        "E: Unable to locate package ceph-mgr-cephadm",
        "E: Sub-process /usr/bin/dpkg returned an error code (1)",
        "ERROR: No matching distribution found for remoto==1.2.1",
        "E: Failed to fetch http://mirror/ceph.deb  404  Not Found",
    ],
)
def test_a_broken_build_fails_the_test(text: str) -> None:
    with pytest.raises(pytest.fail.Exception, match="no image of Ceph could be made: sh: exit status 1: "):
        run_build_step(["sh", "-c", 'echo "$0" >&2; exit 1', text])
    run_build_step(["true"])
