"""The file of docs/SITES.md for Rook, as it is printed there, on the lab that kubectl alone reaches."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Iterator

import pytest
from cluster_state import clean, facts, moving
from cycles import S3
from doc_examples import changed, files_in
from rook_lab import RookLab
from running_lab import RunningLab
from test_rook_on_lab import PodCycle, as_before
from waiting import wait_for

pytestmark = [pytest.mark.lab, pytest.mark.long]

#: nodes, the cluster of Kubernetes, the URL and the lengths; the secret of the page is that of the lab
CHANGES = {
    **{f"worker{number}": f"node{number}" for number in (1, 2, 3)},
    "namespace: load": "namespace: rook-ceph",
    "context: prod ": "context: test ",
    "'http://rook-ceph-rgw-my-store.rook-ceph.svc'": ", ".join(S3["urls"]),
    "fill: {duration: 10m}": "fill: {duration: 10s}",
    "phase: {duration: 20m}": "phase: {duration: 15s}",
}


@pytest.fixture
def rook(lab: RunningLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RookLab]:
    """The lab behind kubectl; the context of the page is in the file of KUBECONFIG."""
    if not shutil.which("kubectl"):
        pytest.skip("kubectl is not installed")
    wait_for(lambda: clean(lab), "a clean cluster", moving=lambda: moving(lab))
    made = RookLab(lab, tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(made.api.kubeconfig(tmp_path)))
    try:
        yield made
    finally:
        made.close()


def test_the_file_of_rook_runs_to_its_report(rook: RookLab, tmp_path: Path) -> None:
    before, deployments = facts(rook.lab), rook.deployments()
    cycle = PodCycle(rook, tmp_path)
    cycle.file.write_text(changed(files_in("SITES.md")["Rook"], CHANGES))
    done = cycle.run()
    assert done.returncode == 0, done.stderr[-3000:]
    as_before(rook, before, deployments)
    phases = cycle.phases()
    assert list(phases) == ["fill", "no-failure", "one-down", "recover", "wait-clean"]
    assert all(count["ok"] for name in list(phases)[:4] for count in phases[name]["accounting"])
    reported = cycle.tool("report", str(cycle.archive))
    assert reported.returncode == 0 and "node3" in (cycle.folder / "report.html").read_text(), reported.stderr
