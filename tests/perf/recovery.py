"""How much faster `recovery: aggressive` is than Ceph's defaults, on labs: the table of docs/RECOVERY.md.

    ./run bench recovery [RELEASE [SCHEDULER]]     e.g. 20.2 mclock_scheduler; without them all, half an hour

One of four OSD nodes is stopped; its data is made again on the others, without load of clients. Each row is a cycle
with Ceph's defaults and the same cycle with the profile.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List, Sequence

import yaml
from inputs.labs import TOOLS, cluster

from cbt_plugins.tools.lab.installed_releases import releases
from cbt_plugins.tools.lab.requirements import missing

#: releases with the schedulers that are measured; before 18.2 mClock was no default
CASES = {"16.2": ["wpq"], "18.2": ["wpq", "mclock_scheduler"], "20.2": ["wpq", "mclock_scheduler"]}
#: what the lab sets so that its recovery is fast in any case
FAST = ("osd_max_backfills", "osd_recovery_max_active", "osd_recovery_sleep")
#: objects whose recovery with Ceph's defaults takes about a minute or more
OBJECTS = {"wpq": 1500, "mclock_scheduler": 20000}
NODES = 4


def config(recovery: str, objects: int) -> Dict[str, Any]:
    stop = {"at": "2s", "fault": {"label": "node", "kind": "stop", "nodes": [f"node{NODES}"]}}
    wait = {"clean": True, "at_most": "12m", "stalled": "4m", "events": [stop]}
    settings: Dict[str, Any] = {"config": {"mon": {"mon_osd_down_out_interval": 3}}}
    its = {**cluster(["rgw1"]), "osds": [f"node{number + 1}" for number in range(NODES)]}
    return {
        "cluster": its,
        "monitoring_profiles": {"recovery": {}},
        "benchmarks": {
            "warp": {
                "s3": {"urls": ["http://rgw1:7480"], "user": "cbt"},
                "engine": "cbt-load",
                "size": "4KiB",
                "workers": 16,
                "settings": {**settings, **({"recovery": recovery} if recovery else {})},
                "cycle": {"phases": [{"fill": {"objects": objects}}, {"wait": wait}]},
            }
        },
    }


class ReleaseLab:
    """A lab of one release and scheduler, with Ceph's own defaults of recovery."""

    def __init__(self, folder: Path, root: str, scheduler: str) -> None:
        self.dir, self.folder, self.objects = folder / "lab", folder, OBJECTS[scheduler]
        shape = ["--osd-nodes", str(NODES), "--rgws", "1", "--clients", "1", "--bind", str(folder)]
        self.tool("up", *shape, *([] if root == "/" else ["--root", root]))
        conf = self.dir / "etc" / "ceph" / "ceph.conf"
        conf.write_text(conf.read_text().replace("osd_op_queue = wpq", f"osd_op_queue = {scheduler}"))
        for node in range(1, NODES + 1):
            self.tool("stop-osds", f"node{node}")
            self.tool("start-osds", f"node{node}")
        for row in json.loads(self.ceph("config", "dump", "-f", "json")):
            if row["name"].startswith(FAST):
                self.ceph("config", "rm", row["section"], row["name"])

    def tool(self, verb: str, *words: str) -> str:
        line = [*TOOLS, "lab", verb, "--dir", str(self.dir), *words]
        return subprocess.run(line, check=True, capture_output=True, text=True).stdout

    def ceph(self, *words: str) -> str:
        return self.tool("exec", "node0", "--", "ceph", *words)

    def runs_with(self, options: Sequence[str]) -> str:
        rows = [f"{name} {self.ceph('config', 'show', 'osd.0', name).strip()}" for name in options]
        return ", ".join(rows)

    def clean(self) -> bool:
        status = json.loads(self.ceph("status", "-f", "json"))
        states = [row["state_name"] for row in status["pgmap"]["pgs_by_state"]]
        return states == ["active+clean"] and status["osdmap"]["num_up_osds"] == 2 * NODES

    def episode(self, recovery: str) -> Dict[str, Any]:
        """Run the cycle; return the failure's milestones and rates."""
        for _ in range(10):  # the states are those of before for some seconds
            while not self.clean():
                time.sleep(1)
            time.sleep(1)
        name = recovery or "default"
        file, archive = self.folder / f"{name}.yaml", self.folder / f"{name}-archive"
        file.write_text(yaml.safe_dump(config(recovery, self.objects)))
        self.tool("exec", "node0", "--", sys.executable, "-m", "cbt_plugins", "-a", str(archive), str(file))
        (summary,) = archive.rglob("summary.json")
        episodes: List[Dict[str, Any]] = json.loads(summary.read_text())["failure"]["milestones"]["episodes"]
        return next(episode for episode in episodes if episode["kind"] == "failure")


def measure(release: str, root: str, scheduler: str) -> None:
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/var/tmp"), prefix="recovery-") as scratch:
        try:
            lab = ReleaseLab(Path(scratch), root, scheduler)
            queue = lab.runs_with(["osd_op_queue"])
            rates = []
            for recovery in ("", "aggressive"):
                episode = lab.episode(recovery)
                at = {milestone["name"]: milestone["seconds"] for milestone in episode["milestones"]}
                rate = episode["recovery"]
                rates.append(rate["objects_per_s"])
                text = f"{rate['objects']} objects in {rate['seconds']:.1f} s, {rate['objects_per_s']:.1f} objects/s"
                out = f"out after {at['out'] or 0:.1f} s, clean after {at['clean'] or 0:.1f} s"
                print(f"  {release} {queue}, {recovery or 'default'}: {text}; {out}", flush=True)
            print(f"  {release} {queue}: {rates[1] / rates[0]:.1f} times as fast", flush=True)
        finally:
            subprocess.run([*TOOLS, "lab", "down", "--wipe", "--dir", str(Path(scratch) / "lab")], capture_output=True)


def main() -> int:
    lacking, _ = missing(ssh=True)
    if lacking:
        print(f"no lab on this machine: {'; '.join(lacking)}")
        return 0
    asked, scheduler = (*sys.argv[1:], "", "")[:2]
    there = {str(release).split()[0]: root for release, root in releases().items()}
    for wanted, schedulers in CASES.items():
        version = next((version for version in there if version.startswith(f"{wanted}.")), None)
        if asked not in ("", wanted):
            continue
        if version is None:
            print(f"  no Ceph {wanted}: `cbt-tools lab root`")
            continue
        print(f"{version}: objects of 4 KiB, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        for queue in schedulers:
            if scheduler in ("", queue):
                measure(version, there[version], queue)
    return 0


if __name__ == "__main__":
    sys.exit(main())
