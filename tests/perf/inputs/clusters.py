"""Clusters of any size, as Ceph's own programs describe them, and a `ceph` and an `ssh` that answer for them.

OSD map, CRUSH tree, rules and the places of PGs are made by `osdmaptool` and `crushtool` of a release. What is in no
map (`osd df`, metadata, status) has the fields of tests/data/ceph, repeated for each OSD.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple

from cbt_plugins.tools.lab.installed_releases import root_of

RECORDED = Path(__file__).parents[2] / "data" / "ceph"
#: OSDs of a node, nodes of a rack
OSDS_PER_NODE, NODES_PER_RACK = 10, 20
#: of an OSD, in KiB: as `osd df` has it
ROOM, USED = 16 << 30, 5 << 30
#: pools of gateways beside their data, with few PGs each
SMALL_POOLS = (".rgw.root", "default.rgw.log", "default.rgw.control", "default.rgw.meta", "default.rgw.buckets.index")
SMALL_PGS = 32
ADMIN = "node-admin"


class Size(NamedTuple):
    """Of a cluster."""

    osds: int
    pgs: int

    @property
    def nodes(self) -> List[str]:
        """Return the names of the nodes with OSDs."""
        return [f"host{number}" for number in range(self.osds // OSDS_PER_NODE)]

    def rack(self, number: int) -> List[str]:
        """Return the nodes of a rack."""
        return self.nodes[number * NODES_PER_RACK : (number + 1) * NODES_PER_RACK]


SIZES = (Size(100, 1024), Size(1000, 8192), Size(10_000, 65_536))


def make(folder: Path, size: Size, release: str) -> Dict[str, Any]:
    """Write all documents of a cluster into a folder, a file for each question, and return them by question."""
    folder.mkdir(parents=True)
    documents = dict(_documents(folder, size, release))
    for question, document in documents.items():
        path = folder / "documents" / question.replace(" ", "_")
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(document, separators=(",", ":")) + "\n")
    return documents


def _program(release: str, name: str) -> List[str]:
    """Return the words that run a program of a release: its own libraries, and the files of this machine."""
    root = root_of(release).rstrip("/")
    loader = [f"{root}/lib64/ld-linux-x86-64.so.2", "--library-path"]
    libraries = "/usr/lib/x86_64-linux-gnu"
    return [*loader, f"{root}{libraries}:{root}{libraries}/ceph:{root}/usr/lib64/ceph", f"{root}/usr/bin/{name}"]


def _run(release: str, folder: Path, name: str, *words: str) -> str:
    line = [*_program(release, name), *words]
    done = subprocess.run(line, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(line)}: {done.stderr[-500:]}")
    return done.stdout


def _parsed(output: str) -> Any:
    """Return the JSON in the output of osdmaptool, which says before what it does."""
    return json.loads(output[output.index("{") :])


def _documents(folder: Path, size: Size, release: str) -> Iterator[tuple[str, Any]]:
    shape = ["--num_osds", str(size.osds), "host", "straw2", str(OSDS_PER_NODE)]
    shape += ["rack", "straw2", str(NODES_PER_RACK), "root", "straw2", "0"]
    _run(release, folder, "crushtool", "-o", "crush", "--build", *shape)
    _run(release, folder, "osdmaptool", "--createsimple", str(size.osds), "map", "--with-default-pool", "--clobber")
    _run(release, folder, "osdmaptool", "map", "--import-crush", "crush")
    read = ("osdmaptool", "map", "--mark-up-in")
    dump = _parsed(_run(release, folder, *read, "--dump", "json"))
    crush = json.loads(_run(release, folder, "crushtool", "-i", "crush", "--dump"))
    recorded = json.loads((RECORDED / "pacific-blast.json").read_text())
    ratios = ("full_ratio", "backfillfull_ratio", "nearfull_ratio", "flags_set", "erasure_code_profiles")
    dump.update({name: recorded["osd dump"][name] for name in ratios})
    small = [{**dump["pools"][0], "pool_name": name, "pool": 2 + n} for n, name in enumerate(SMALL_POOLS)]
    dump["pools"] = [{**dump["pools"][0], "pool_name": "default.rgw.buckets.data"}, *small]
    for pool in dump["pools"]:
        pool["pg_num"] = pool["pg_placement_num"] = size.pgs if pool["pool"] == 1 else SMALL_PGS
    yield "osd dump", dump
    yield "osd tree", _parsed(_run(release, folder, *read, "--tree=json"))
    yield "osd crush rule dump", crush["rules"]
    placed = _run(release, folder, *read, "--test-map-pgs-dump", "--pool", "1", "--pg_num", str(size.pgs))
    acting = {seed: json.loads(osds) for seed, osds in re.findall(r"^1\.([0-9a-f]+)\t(\[[\d,]+\])", placed, re.M)}
    row = recorded["pg dump pgs_brief"]["pg_stats"][0]
    pgs = [
        {**row, "pgid": f"{pool['pool']}.{n:x}", "up": osds, "acting": osds, "up_primary": osds[0]}
        for pool in dump["pools"]
        for n, osds in ((n, acting[f"{n:x}"]) for n in range(pool["pg_num"]))
    ]
    yield "pg dump pgs_brief", {"pg_ready": True, "pg_stats": pgs}
    row = recorded["osd df"]["nodes"][0]
    yield "osd df", {"nodes": [{**row, "id": n, "name": f"osd.{n}", "kb": ROOM, "kb_used": USED}
                               for n in range(size.osds)], "stray": []}  # fmt: skip
    row = recorded["osd metadata"][0]
    yield "osd metadata", [{**row, "id": n, "hostname": f"host{n // OSDS_PER_NODE}"} for n in range(size.osds)]
    yield from _about_all(recorded, size, release)


def _about_all(recorded: Dict[str, Any], size: Size, release: str) -> Iterator[tuple[str, Any]]:
    for question in ("quorum_status", "mon metadata", "config get mon mon_osd_min_in_ratio"):
        yield question, recorded[question]
    manager = {"name": "node0", "hostname": "node0"}
    yield "mgr metadata", [manager]
    yield "mgr stat", {"epoch": 5, "available": True, "active_name": "node0", "num_standby": 0}
    yield "mgr dump", {"available": True, "active_name": "node0", "standbys": []}
    for question in ("config dump", "service dump", "mds metadata"):
        yield question, {} if question == "service dump" else []
    name = {"16": "pacific", "18": "reef", "20": "tentacle"}.get(release, release)
    status = json.loads((RECORDED / f"{name}-status.json").read_text())
    status["osdmap"].update(num_osds=size.osds, num_up_osds=size.osds, num_in_osds=size.osds)
    pgs = size.pgs + SMALL_PGS * len(SMALL_POOLS)
    status["pgmap"].update(num_pgs=pgs, pgs_by_state=[{"state_name": "active+clean", "count": pgs}])
    yield "status", status
    yield "df", json.loads((RECORDED / f"{name}-df.json").read_text())


#: a `ceph` that answers from files: a question in its arguments, or one a line on its input; unknown ones are refused.
#: It keeps one key; the OSD map is the one that the last order to a node has left.
_CEPH = r"""#!/bin/bash
answer() {
  local file
  file="$DOCUMENTS/$(IFS=_; echo "$*")"
  echo "$*" >>"$DOCUMENTS/.asked"
  case "$*" in
    "osd ok-to-stop "*) echo '{"ok_to_stop": true, "num_ok_pgs": 0, "num_not_ok_pgs": 0}' ;;
    "config-key set "*) printf '{"%s": "%s"}' "$3" "$(sed 's/["\\]/\\&/g' <<<"${*:4}")" >"$DOCUMENTS/.key" ;;
    "config-key rm "*) echo '{}' >"$DOCUMENTS/.key" ;;
    "config-key dump"*) cat "$DOCUMENTS/.key" 2>/dev/null || echo '{}' ;;
    "osd in "* | "osd set "* | "osd unset "*) ;;
    fsid) echo "b938b8b6-7da1-4438-8402-49363a56592a" ;;
    *) [[ -e $file ]] || { echo "Error EINVAL: invalid command: $*" >&2; return 22; }; cat "$file" ;;
  esac
}
words=()
while (($#)); do
  case $1 in
    -c | -f | --connect-timeout) shift ;;
    *) words+=("$1") ;;
  esac
  shift
done
if ((${#words[@]})); then answer "${words[@]}"; exit; fi
while read -ra words; do answer "${words[@]}"; done
"""


#: an `ssh` to nodes whose OSDs are units of systemd: each command succeeds; a stop brings `osd_dump.down` in force
_SSH = r"""#!/bin/bash
text=${!#}
if [[ $text == *"daemons="* ]]; then
  names=${text#*daemons=}
  for name in $(grep -oE 'osd\.[0-9]+' <<<"${names%%;*}" | sort -u); do
    echo "unit $name ceph-osd@${name#osd.}.service active"
  done
fi
case $text in
  *"systemctl start"*) ln -sf osd_dump.up "$DOCUMENTS/osd_dump" ;;
  *"systemctl stop"*) ln -sf osd_dump.down "$DOCUMENTS/osd_dump" ;;
esac
[[ $text =~ echo\ ([0-9a-f]{32})\ .status ]] && echo "${BASH_REMATCH[1]} 0"
exit 0
"""


def take_down(folder: Path, osds: Iterable[int]) -> None:
    """Make the second OSD map of a cluster that `make` has written, with these OSDs down."""
    documents = folder / "documents"
    up = documents / "osd_dump.up"
    (documents / "osd_dump").rename(up)
    (documents / "osd_dump").symlink_to(up.name)
    dump = json.loads(up.read_text())
    for osd in osds:
        dump["osds"][osd]["up"] = 0
    (documents / "osd_dump.down").write_text(json.dumps(dump, separators=(",", ":")) + "\n")


def asked(folder: Path) -> List[str]:
    """Return the questions that the cluster in a folder was asked since the last call."""
    log = folder / "documents" / ".asked"
    questions = log.read_text().splitlines() if log.exists() else []
    log.unlink(missing_ok=True)
    return questions


def programs(folder: Path, documents: Path) -> Dict[str, str]:
    """Write a `ceph` that answers with the documents, and an `ssh`, into a folder; return the environment for them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {"ceph": _CEPH, "ssh": _SSH}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "DOCUMENTS": str(documents / "documents")}
