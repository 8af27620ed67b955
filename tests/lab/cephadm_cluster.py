"""A cluster that `cephadm bootstrap` makes in nodes of the lab: every daemon is in a container of podman.

The nodes have a real systemd and journald, the machine's podman and runc, the image that `image` makes of the packages
of a Debian, and the cephadm of this image. Of the machine they see nothing that cephadm changes: what it writes below
/etc, and what podman keeps, is the node's own. An OSD's store is a file, as everywhere in the lab: it is made as a
legacy OSD, and `cephadm adopt` makes the container of it.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, NoReturn, Tuple

import pytest
from running_lab import need_machine, need_systemd

from cbt_plugins.programs import cache_dir
from cbt_plugins.tools.lab import Lab, LabError, Topology
from cbt_plugins.tools.lab.ceph_conf import ceph_conf
from cbt_plugins.tools.lab.daemons import Daemons, Step, await_clean, await_up, make_pools
from cbt_plugins.tools.lab.namespaces import Spaces
from cbt_plugins.tools.lab.process import CephShell, wait_for
from cbt_plugins.tools.lab.root_builder import RootBuilder
from cbt_plugins.tools.lab.topology import HEAD, LabNode, LabRecord

#: in node0, while a test has it
REGISTRY = "node0:5000"


class Image(NamedTuple):
    """An image of Ceph: the packages of a Debian, and Python modules in the place of some of them."""

    release: str
    version: str
    modules: Tuple[str, ...]  # of PyPI
    python: Tuple[str, ...] = ()  # options of pip for the Python of the image
    in_registry: bool = False

    @property
    def name(self) -> str:
        return f"{REGISTRY if self.in_registry else 'localhost'}/ceph:{self.version}"


#: what cephadm's module needs and Debian 12 has no package of
OLD = Image("pacific", "16.2.15", ("remoto==1.2.1", "execnet==1.9.0"))
_FOR_313 = ("--python-version=3.13", "--abi=abi3", "--abi=none", "--platform=manylinux2010_x86_64", "--platform=any")
#: a ceph-mgr cannot import what is written in Rust (PyO3), as these are in Debian 13: their last releases in C
NEW = Image(
    "reef",
    "18.2.7",
    ("asyncssh==2.11.0", "cryptography==3.3.2", "bcrypt==3.2.2", "pyOpenSSL==20.0.1", "six==1.17.0"),
    (*_FOR_313, "--implementation=cp", "--only-binary=:all:"),
    in_registry=True,
)
#: where the first monitor is, and `cephadm shell` works; the rest of them
NODES = ("node1", "node2", "node3")
FIRST = NODES[0]
#: hosts with a gateway, and its port
GATEWAYS, PORT = ("node2", "node3"), 7480
CLUSTER: Dict[str, Any] = {
    "user": "root",
    "head": FIRST,
    "ceph": "cephadm",
    "clients": ["client1"],
    "osds": list(NODES),
    "mons": list(NODES),
    "rgws": list(GATEWAYS),
    "use_existing": True,
    "iterations": 1,
    "tmp_dir": "/var/tmp/cbt",
}
#: what apt, debootstrap, pip and the kernel say where a machine has no network, no mirror of packages or no space
_LACKS = re.compile(
    r"could not resolve|failure resolving|name resolution|(could not|unable to|cannot) connect|network is unreachable"
    r"|no route to host|connection (refused|timed out|failed|reset)|failed to establish a new connection"
    r"|failed getting release file|no mirror of debian|proxyerror|read timed out|no space left on device",
    re.IGNORECASE,
)
_PROGRAMS = ("podman", "runc", "cephadm", "catatonit", "conmon", "lvcreate", "debootstrap")
_PACKAGES = ("ceph-mgr-cephadm", "cephadm", "lvm2", "udev", "radosgw", "podman-")
#: of the packages above: an image that was made with others is not used
_PACKAGING = 2

#: $0 root folder, $1 work folder, $2 store, $3 image, then packages; in a mount namespace of its own
_BUILD = """
set -e; m=$1/merged; mkdir -p "$1/upper" "$1/work" "$m"
mount -t overlay overlay -o "lowerdir=$0,upperdir=$1/upper,workdir=$1/work" "$m"
mount --bind "$1/pip" "$m/mnt"
for d in proc sys dev; do mount --rbind "/$d" "$m/$d"; done
mount -t tmpfs tmpfs /mnt # podman's own folder has a path of at most 50 characters
store=$2 image=$3; shift 3
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 TMPDIR=/tmp
chroot "$m" apt-get -q install -y --no-install-recommends "$@" >&2
for d in proc sys dev; do umount -l "$m/$d"; done
for f in "$m/mnt"/*; do rm -rf "$m/usr/lib/python3/dist-packages/${f##*/}"; done
cp -r "$m/mnt/." "$m/usr/lib/python3/dist-packages/"; umount "$m/mnt"
tar -C "$m" -c --one-file-system . |
  podman --root "$store" --runroot /mnt/run --storage-driver overlay import -q --change 'LABEL ceph=True' - "$image"
"""
#: $0 store, $1 image, $2 where to; the paths of a store are those with which it was made
_PUSH = """
mount -t tmpfs tmpfs /mnt
exec podman --root "$0" --runroot /mnt/run --storage-driver overlay push -q --tls-verify=false "$1" "$2"
"""
#: of every node. No controller of version 2 is free where version 1 has it; no limit of a container can be raised
_CONTAINERS = """[containers]
pids_limit = 0
default_ulimits = ["nofile=20000:20000", "nproc=20000:20000"]
[engine]
runtime = "runc"
"""
_STORAGE = """[storage]
driver = "overlay"
runroot = "/run/containers/storage"
graphroot = "/var/lib/containers/storage"
[storage.options]
additionalimagestores = ["{store}"]
"""
_REGISTRIES = f"""[[registry]]
location = "{REGISTRY}"
insecure = true
"""
#: of the registry: $0 its folder, $1 its address
_SERVE = """
printf 'version: 0.1\nstorage: {filesystem: {rootdirectory: %s}}\nhttp: {addr: "%s"}\n' "$0" "$1" > "$0.yml"
exec docker-registry serve "$0.yml"
"""
_POLICY = '{"default": [{"type": "insecureAcceptAnything"}]}\n'
#: Before all others at each boot: what is the node's own, folders that cephadm mounts, and the log that podman writes.
#: The kernel is the machine's: sysctl, which cephadm runs for OSDs, does nothing.
_BOOT = """[Unit]
DefaultDependencies=no
Before=sysinit.target
[Service]
ExecStartPre=/bin/mkdir -p /run/systemd/journal /run/udev /run/lvm /run/lock/lvm
ExecStartPre=/bin/mount --bind /var/tmp/containers /var/lib/containers
ExecStartPre=/bin/mount --bind {base}/containers /etc/containers
ExecStartPre=/bin/mount -t tmpfs tmpfs /etc/sysctl.d
ExecStartPre=/bin/mount -t tmpfs tmpfs /etc/logrotate.d
ExecStartPre=/bin/mount --bind /bin/true /usr/sbin/sysctl
ExecStart=/usr/lib/systemd/systemd-journald
Type=notify
[Install]
WantedBy=sysinit.target
"""
_JOURNAL = "[Journal]\nStorage=volatile\nRuntimeMaxUse=16M\nReadKMsg=no\nForwardToSyslog=no\n"
#: cephadm insists on a clock; that of the lab is the machine's
_CLOCK = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"
#: $0 folder with the texts above, $1 image
_PREPARE = """
set -e
mkdir -p /var/tmp/containers
cp "$0/boot" /etc/systemd/system/lab-containers.service
cp "$0/clock" /etc/systemd/system/chrony.service
cp "$0/journal" /etc/systemd/journald.conf
systemctl daemon-reload
systemctl --quiet enable --now lab-containers chrony
podman run --rm --net=host --entrypoint cat "$1" /usr/sbin/cephadm >/var/tmp/cephadm
chmod 755 /var/tmp/cephadm
mount --bind /var/tmp/cephadm /usr/sbin/cephadm
"""
#: a legacy OSD: $1 image, $2 bytes, then numbers
_ADOPT = """
set -e; image=$1 size=$2; shift 2; mkdir -p /etc/ceph/osd
for n in "$@"; do
  u=$(cat /proc/sys/kernel/random/uuid) d=/var/lib/ceph/osd/ceph-$n; mkdir -p "$d"; chown ceph:ceph "$d"
  ceph osd new "$u" "$n"
  ceph auth get-or-create "osd.$n" mon "allow profile osd" mgr "allow profile osd" osd "allow *" -o "$d/keyring"
  ceph-osd --no-mon-config --mkfs -i "$n" --osd-uuid "$u" --osd-data "$d" --bluestore-block-size "$size" \
    --bluestore-block-preallocate-file=false 2>/dev/null
  chown -R ceph:ceph "$d"
  echo "{\\"type\\": \\"bluestore\\", \\"fsid\\": \\"$u\\"}" > "/etc/ceph/osd/$n-$u.json"
  cephadm --image "$image" adopt --style legacy --name "osd.$n" --skip-pull --skip-firewalld --force-start
done
"""
#: the nodes have no packages of Ceph any more
_HIDE = """
set -e; mkdir -p /run/bin/upper /run/bin/work
mount -t overlay overlay -o lowerdir=/usr/bin,upperdir=/run/bin/upper,workdir=/run/bin/work /usr/bin
cd /usr/bin && rm -f ceph ceph-* rados radosgw radosgw-admin rbd
"""


def need_cephadm() -> None:
    """Skip, with the reason, where no node of the lab can have containers."""
    need_machine(6)
    need_systemd()
    absent = [name for name in _PROGRAMS if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") is None]
    if absent:
        pytest.skip(f"no cephadm cluster, missing {', '.join(absent)} (packages podman, runc, cephadm, debootstrap)")
    if not Path("/etc/debian_version").exists():
        pytest.skip("no cephadm cluster: the image is made of the packages of Debian 12")


def image(made: Image = OLD) -> Path:
    """Return the store of podman with an image of Ceph; it is made in the cache: minutes, 3 GB."""
    store = images() / f"{made.version}-{_PACKAGING}"
    store.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{store}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not store.exists():
            try:
                root = RootBuilder(lambda text: None).make(made.release)
            except LabError as error:
                end_build(f"no root folder of Ceph {made.release}: {error}")
            work, partial = Path(f"{store}.work"), Path(f"{store}.partial")
            for folder in (work, partial):
                shutil.rmtree(folder, ignore_errors=True)
            pip = [sys.executable, "-m", "pip", "-q", "install", "--no-deps", "--target", str(work / "pip")]
            run_build_step([*pip, *made.python, *made.modules])
            script = ["bash", "-c", f"set -o pipefail; {_BUILD}", str(root), str(work), str(partial), made.name]
            run_build_step(["unshare", "--mount", "--propagation", "private", *script, *_PACKAGES])
            if made.in_registry:
                _push(made, partial)
            shutil.rmtree(work)
            os.rename(partial, store)
    return store


def images() -> Path:
    return cache_dir() / "images"


def registry(address: str) -> List[str]:
    """Return the command line of a registry with all images that were pushed."""
    return ["sh", "-c", _SERVE, str(images() / "registry"), address]


def _push(made: Image, store: Path) -> None:
    """Put an image into the folder of the registry."""
    if shutil.which("docker-registry") is None:
        pytest.skip("no registry for the image of an upgrade: docker-registry is not installed")
    address = "127.0.0.1:5055"
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    serving = subprocess.Popen(registry(address), **quiet)  # the output is that of tests/rook
    try:
        wait_for(lambda: _answers(address), "the registry", 60.0)
        target = f"docker://{made.name.replace(REGISTRY, address)}"
        push = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _PUSH]
        run_build_step([*push, str(store), made.name, target])
    finally:
        serving.terminate()
        serving.wait()


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{address}/v2/", timeout=5):
            return True
    except OSError:
        return False


def run_build_step(argv: List[str]) -> None:
    """Run a program of the build of an image; skip or fail the test if it fails, as `end_build` does."""
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        end_build(f"{argv[0]}: exit status {done.returncode}: {done.stderr.strip()}")


def end_build(error: str) -> NoReturn:
    """Skip the test if the machine lacks what a build needs, by the error of the build; else fail the test."""
    text = f"no image of Ceph could be made: {error[-600:]}"
    if _LACKS.search(error):
        pytest.skip(text)
    pytest.fail(text, pytrace=False)


def shape(base: Path) -> Topology:
    """Return the lab for such a cluster: three nodes with systemd and two OSDs each, one client."""
    images().mkdir(parents=True, exist_ok=True)
    return Topology(osd_nodes=3, rgws=0, clients=1, systemd=NODES, bind=(str(base), str(images())))


class ContainerLab(Lab):
    """A lab whose daemons the nodes' systemd starts at boot."""

    def start_osds(self, name: str) -> None:
        """Do nothing."""

    def boot(self, name: str) -> None:
        """Start a node that is off; nothing else."""
        with self.alone():
            self.spaces.start_nodes([self.record.topology.node(name)])


class Bootstrap:
    """A way to the daemons of a lab, for `Lab.up`: its files are in `base`; cephadm is that of the image."""

    def __init__(self, base: Path, image_of_daemons: Image) -> None:
        self._base, self._image, store = base, image_of_daemons.name, image(image_of_daemons)
        folder = base / "containers"
        folder.mkdir()
        texts = {"containers.conf": _CONTAINERS, "policy.json": _POLICY, "registries.conf": _REGISTRIES}
        texts["storage.conf"] = _STORAGE.format(store=store)
        for name, text in texts.items():
            (folder / name).write_text(text)
        for name, text in (("boot", _BOOT.format(base=base)), ("clock", _CLOCK), ("journal", _JOURNAL)):
            (base / name).write_text(text)

    def __call__(self, directory: Path, record: LabRecord, spaces: Spaces, fresh: bool, step: Step) -> None:
        topology = record.topology
        nodes = list(topology.nodes.values())
        spaces.start_nodes(nodes)
        with Daemons(spaces) as daemons:
            hosts = [node for node in nodes if node.systemd]
            with ThreadPoolExecutor() as pool:
                words = (_PREPARE, str(self._base), self._image)
                list(pool.map(lambda node: self._in(daemons, node.name, *words), hosts))
            step("nodes with podman")
            self._bootstrap(daemons, topology)
            step("cephadm bootstrap")
            fsid = daemons.run(HEAD, "ceph fsid").strip()
            record.fsid = fsid
            with CephShell(spaces.enter(HEAD), spaces.environment(), fsid) as ceph:
                groups = self._options_and_pools(ceph, topology)
                self._daemons(daemons, ceph, topology, hosts)
                await_up(ceph, topology)
                step("OSDs up")
                for host in hosts:
                    self._in(daemons, host.name, _HIDE, "")
                self._await_orchestrator(ceph, topology)
                step("daemons known to the orchestrator")
                self._make_user(daemons)
                step(await_clean(ceph, len(topology.osds), groups))
        record.state = "created"
        record.save(directory)

    @staticmethod
    def _in(daemons: Daemons, node: str, script: str, *words: str) -> str:
        return daemons.run(node, " ".join(["sh", "-c", *map(shlex.quote, (script, *words))]))

    def _bootstrap(self, daemons: Daemons, topology: Topology) -> None:
        conf = ceph_conf(topology, "unused")
        options = {"osd_pool_default_pg_autoscale_mode": "off", "osd_pool_default_pg_num": 8}
        options.update({"osd_pool_default_pgp_num": 8, "mon_max_pg_per_osd": 1000, "mon_allow_pool_delete": "true"})
        options.update({"auth_allow_insecure_global_id_reclaim": "false", "ms_bind_ipv6": "false"})
        lines = "".join(f"{name} = {value}\n" for name, value in options.items())
        (self._base / "boot.conf").write_text(f"[global]\n{lines}\n{conf[conf.index('[mon]') :]}")
        address = topology.nodes[FIRST].address
        skipped = "--skip-pull --skip-monitoring-stack --skip-dashboard --skip-firewalld --allow-overwrite"
        keys = "--ssh-private-key /root/.ssh/id_ed25519 --ssh-public-key /root/.ssh/id_ed25519.pub"
        config = f"--config {self._base}/boot.conf"
        daemons.run(FIRST, f"cephadm --image {self._image} bootstrap --mon-ip {address} {skipped} {keys} {config}")

    @staticmethod
    def _options_and_pools(ceph: CephShell, topology: Topology) -> int:
        ceph.ask("config set mgr mgr/cephadm/use_repo_digest false")  # the image is in no registry
        ceph.ask("config set osd osd_memory_target_autotune false")  # the orchestrator would set other targets in runs
        ceph.ask("config set mon mon_cluster_log_to_file true")
        # on Python 3.13 a ceph-mgr of 18.2.7 takes each module without NOTIFY_TYPES for a module that has crashed
        ceph.ask("config set mgr mgr/crash/warn_recent_interval 0")
        return make_pools(ceph, replace(topology, rgws=1))

    def _daemons(self, daemons: Daemons, ceph: CephShell, topology: Topology, hosts: List[LabNode]) -> None:
        for host in hosts[1:]:
            ceph.ask(f"orch host add {host.name} {host.address}")
        placement = " ".join(GATEWAYS)

        def adopt(host: LabNode) -> None:
            self._in(daemons, host.name, _ADOPT, "sh", self._image, str(topology.block), *map(str, host.osds))

        with ThreadPoolExecutor() as pool:
            list(pool.map(adopt, hosts))
        ceph.ask(f"orch apply rgw lab --placement='{placement}' --port {PORT}")

    @staticmethod
    def _await_orchestrator(ceph: CephShell, topology: Topology) -> None:
        """Wait until all daemons run, and adopted OSDs are configured: until then they lose their orders."""

        seen = ""

        def ready() -> bool:
            nonlocal seen
            # without --refresh a host is looked at again after ten minutes, and its adopted OSDs count as strays
            answer = ceph.ask("orch ps --refresh")
            rows: List[Dict[str, Any]] = json.loads(answer[answer.index("[") :]) if "[" in answer else []
            names = [f"{row['daemon_type']}.{row['daemon_id']}" for row in rows if row.get("status_desc") == "running"]
            events = [event for row in rows for event in row.get("events", [])]
            configured = all(any(f"Reconfigured osd.{n} " in event for event in events) for n in topology.osds)
            wanted = {"mon": 3, "mgr": 2, "osd": len(topology.osds), "rgw": len(GATEWAYS)}
            counts = {type: sum(name.startswith(f"{type}.") for name in names) for type in wanted}
            seen = f"{counts}, OSDs configured: {configured}"
            return configured and counts == wanted

        try:
            wait_for(ready, "the orchestrator's daemons", 300, 5.0)
        except LabError as error:
            raise LabError(f"{error}: {seen}") from None

    @staticmethod
    def _make_user(daemons: Daemons) -> None:
        create = "radosgw-admin user create --uid=cbt --display-name=cbt --max-buckets=0 --gen-access-key --gen-secret"
        daemons.run(HEAD, f"{create} >/dev/null 2>&1")

