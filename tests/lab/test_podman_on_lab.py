"""A run whose nodes are containers of podman, each in the namespaces of a node of the lab; this machine leads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest
from cluster_state import clean, facts, moving
from containers import PodmanEngine
from cycles import CLUSTER, S3
from running_lab import RunningLab
from test_rook_on_lab import PodCycle
from waiting import wait_for

pytestmark = [pytest.mark.lab, pytest.mark.long]

NODES = ("node0", "node1", "client1", "client2")
GENERATORS = {(node, "generator") for node in ("client1", "client2")}
SECTION: Dict[str, Any] = {
    "s3": S3,
    "engine": "cbt-load",
    "size": "4KiB",
    "workers": 4,
    "generator_ceiling": False,
    "cycle": {"phases": [{"fill": {"objects": 50}}, {"hybrid": {"duration": "5s", "mix": {"get": 60, "put": 40}}}]},
}


class ContainerLab:
    """`lab`, whose nodes this machine reaches by `podman exec` alone."""

    def __init__(self, lab: RunningLab, engine: PodmanEngine) -> None:
        self.lab, self.engine = lab, engine

    def start(self) -> None:
        """Start a container for each of NODES: processes and network of the node, and folders of its own."""
        etc = self.engine.rootfs / "etc"
        (etc / "ceph").mkdir()
        for name in self.lab.exec("node0", ["ls", "/etc/ceph"]).stdout.split():
            (etc / "ceph" / name).write_text(self.lab.exec("node0", ["cat", f"/etc/ceph/{name}"]).stdout)
        (etc / "hosts").write_text((self.lab.dir / "etc" / "hosts").read_text())
        for node in NODES:
            first = self.lab.lab.spaces.first(node)
            assert first
            place = f"ns:/proc/{first.pid}/ns"
            options = [f"--network={place}/net", f"--pid={place}/pid", "--no-hosts"]
            for folder in ("/tmp", "/var/tmp"):
                own = self.engine.folder / node / folder[1:]
                own.mkdir(parents=True)
                own.chmod(0o1777)
                options += ["-v", f"{own}:{folder}"]
            self.engine.run(node, *options)

    def cluster(self) -> Dict[str, Any]:
        """The section `cluster:` of a file."""
        roles = {key: value for key, value in CLUSTER.items() if key != "rgws"}
        return {**roles, "osds": ["node1"], "transport": dict.fromkeys(NODES, "podman")}


@pytest.fixture
def containers(lab: RunningLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ContainerLab]:
    wait_for(lambda: clean(lab), "a clean cluster", moving=lambda: moving(lab))
    engine = PodmanEngine(tmp_path / "engine")
    for name, value in engine.environment.items():
        monkeypatch.setenv(name, value)
    try:
        made = ContainerLab(lab, engine)
        made.start()
        yield made
    finally:
        engine.close()


def left(engine: PodmanEngine) -> List[str]:
    """Files of runs that are in the folders of the containers."""
    return [str(path) for node in NODES for path in (engine.folder / node).rglob("*") if path.is_file()]


def test_a_run_to_its_report(containers: ContainerLab, tmp_path: Path) -> None:
    before = facts(containers.lab)
    cycle = PodCycle(containers, tmp_path, warp=SECTION)
    live = cycle.tool("plan", str(cycle.file), "--live")
    assert live.returncode == 0 and "is ready for a run" in live.stdout, live.stdout + live.stderr
    done = cycle.run()
    assert done.returncode == 0, done.stderr[-3000:]
    named = json.loads((cycle.folder / "cluster.json").read_text())["cluster"]["transport"]
    assert named == dict.fromkeys(NODES, "podman")
    phases = cycle.phases()
    assert {name: phase["status"] for name, phase in phases.items()} == {"fill": "ok", "hybrid": "ok"}
    assert all(count["ok"] for phase in phases.values() for count in phase["accounting"])
    assert {job["node"] for job in phases["hybrid"]["jobs"]} == {"client1", "client2"}
    watched = cycle.summary()["resources"]["phases"]["hybrid"]
    assert {row["node"] for row in watched["nodes"]} == set(NODES)
    daemons = {(row["node"], row["class"]) for row in watched["daemons"]}
    assert daemons == {("node0", "mon"), ("node0", "mgr"), ("node1", "osd"), *GENERATORS}
    samples = "".join(path.read_text() for path in cycle.folder.rglob("recovery.jsonl"))
    assert '"via": "librados"' in samples
    assert (cycle.folder / "report.html").exists() and cycle.tool("report", str(cycle.archive)).returncode == 0
    assert facts(containers.lab) == before and left(containers.engine) == []
