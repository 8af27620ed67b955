"""Files that make a lab's cluster: ceph.conf, keyring, commands for its pools, ssh.

What a test may want to change at run time is set in the monitors' database instead (`RUNTIME`): a value in
ceph.conf would win over `ceph config set`.
"""

from __future__ import annotations

import base64
import os
import shutil
import struct
import subprocess
import time
from importlib import metadata
from pathlib import Path
from typing import Dict, List, Mapping, Sequence, Tuple

import cbt_plugins

from .requirements import LabError
from .topology import MASK, PREFIX, S3_PORT, S3_TLS_PORT, LabNode, Topology

_GLOBAL = """\
[global]
fsid = {fsid}
mon_host = {addresses}
mon_initial_members = {mons}
public_network = {network}
ms_bind_ipv6 = false
auth_client_required = cephx
auth_cluster_required = cephx
auth_service_required = cephx
auth_allow_insecure_global_id_reclaim = false
run_dir = /var/run/ceph
keyring = /etc/ceph/keyring
log_to_syslog = false
err_to_syslog = false
max_open_files = 16384
ms_async_op_threads = 1
osd_pool_default_size = {copies}
osd_pool_default_min_size = {least}
osd_pool_default_pg_num = 8
osd_pool_default_pgp_num = 8
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = {leaf}
mon_max_pg_per_osd = 1000
mon_pg_warn_min_per_osd = 0
mon_allow_pool_delete = true
mon_allow_pool_size_one = true
mon_warn_on_pool_no_redundancy = false
# Read by the monitor, not by the mgr: no optional module is worth its start-up time, some fail on Debian 13.
mgr_initial_modules =
"""

_DAEMONS = """
[mon]
mon_data_avail_warn = 2
mon_data_avail_crit = 1
mon_cluster_log_file = /var/log/ceph/cluster.log
paxos_propose_interval = 0.1
mon_osd_min_down_reporters = 1
mon_osd_adjust_heartbeat_grace = false
mon_osd_adjust_down_out_interval = false
# A whole lost host is marked out, not only single OSDs of it.
mon_osd_down_out_subtree_limit = rack
osd_heartbeat_grace = 6

[mgr]
mgr_stats_period = 2
mgr_tick_period = 1
mgr/progress/enabled = true

[osd]
osd_objectstore = bluestore
bluestore_block_size = {block}
bluestore_block_create = true
bluestore_block_preallocate_file = false
bluestore_block_db_create = false
bluestore_block_wal_create = false
osd_memory_target = {osd_memory}
osd_op_num_shards = 2
osd_op_num_threads_per_shard = 1
osd_heartbeat_interval = 2
osd_heartbeat_grace = 6
osd_crush_update_on_start = true
osd_max_scrubs = 1
osd_scrub_min_interval = 31536000
osd_scrub_max_interval = 31536000
osd_deep_scrub_interval = 31536000
# mclock, Reef's default, would benchmark the disk at every start and overrule the recovery limits below.
osd_op_queue = wpq
osd_mclock_skip_benchmark = true

[client]
admin_socket = /var/run/ceph/$cluster-$name.$pid.$cctid.asok
rbd_cache = true
"""

#: in /etc/ceph of every node: key and certificate of the RGWs; the certificate alone
TLS_KEY, TLS_AUTHORITY = "rgw.pem", "rgw-ca.pem"

_RGW = """
[client.{name}]
rgw_frontends = beast port={port} tcp_nodelay=1{tls}
rgw_run_sync_thread = false
rgw_enable_quota_threads = false
rgw_enable_usage_log = false
rgw_dynamic_resharding = false
"""


def mon_addresses(node: LabNode) -> str:
    """Return the two addresses of a node's ceph-mon, as ceph.conf and monmaptool take them."""
    return f"[v2:{node.address}:3300,v1:{node.address}:6789]"


def ceph_conf(topology: Topology, fsid: str, tls: bool = False) -> str:
    """Return the one ceph.conf that all nodes share; `tls`: RGWs have https, too."""
    mons = [node for node in topology.nodes.values() if node.mon]
    values = {
        "fsid": fsid,
        "mons": ",".join(mon.name for mon in mons),
        "addresses": ",".join(map(mon_addresses, mons)),
        "network": f"{PREFIX}.0.0/{MASK}",
        "copies": topology.copies,
        "least": 2 if topology.copies == 3 else 1,
        "leaf": 1 if topology.failure_domain == "host" else 0,
        "block": topology.block,
        "osd_memory": topology.osd_memory,
    }
    secured = f" ssl_port={S3_TLS_PORT} ssl_certificate=/etc/ceph/{TLS_KEY}" if tls else ""
    rgws = [_RGW.format(name=node.name, port=S3_PORT, tls=secured) for node in topology.nodes.values() if node.rgw]
    return (_GLOBAL + _DAEMONS).format(**values) + "".join(rgws)


def runtime_commands(topology: Topology, option_names: Sequence[str]) -> List[str]:
    """Return `ceph` commands for the monitors' database: recovery at full speed, `out` soon, gateways as small as the
    lab. `option_names`: the names of all options of this release.

    osd_recovery_sleep = 0 alone means "by the class of the disk", and files count as hdd. 20.2 has sleeps of their own
    for degraded PGs.
    """
    options = [("mon", "mon_osd_down_out_interval", topology.out_interval), ("osd", "osd_max_backfills", 4)]
    options += [("osd", name, 8) for name in ("osd_recovery_max_active", "osd_recovery_max_active_hdd")]
    options += [("osd", name, 0) for name in option_names if name.startswith("osd_recovery_sleep")]
    options += [("client", "rgw_thread_pool_size", 64), ("client", "rgw_override_bucket_index_max_shards", 4)]
    return [f"config set {who} {name} {value}" for who, name, value in options]


def pool_commands(topology: Topology) -> Tuple[List[str], int]:
    """Return `ceph` commands that make the pools, and the number of placement groups in them."""
    pools = [("rbd", 16, "replicated", "rbd")]
    profile: List[str] = []
    if topology.rgws:
        for name, pgs in (
            (".rgw.root", 4),
            ("default.rgw.log", 4),
            ("default.rgw.control", 4),
            ("default.rgw.meta", 4),
            ("default.rgw.buckets.index", 8),
            ("default.rgw.buckets.non-ec", 4),
        ):
            pools.append((name, pgs, "replicated", "rgw"))
        kind = "replicated"
        if topology.ec:
            data, coding = topology.ec
            domain = f"crush-failure-domain={topology.failure_domain}"
            profile = [f"osd erasure-code-profile set lab-ec k={data} m={coding} {domain}"]
            kind = "erasure lab-ec"
        pools.append(("default.rgw.buckets.data", topology.data_pgs, kind, "rgw"))
    create_commands = [f"osd pool create {name} {pgs} {pgs} {kind}" for name, pgs, kind, _ in pools]
    used = [f"osd pool application enable {name} {application}" for name, _, _, application in pools]
    return profile + create_commands + used, sum(pgs for _, pgs, _, _ in pools)


def key_like(pattern: str) -> str:
    """Make a new random key of the same type and length as `pattern`, which the release itself printed.

    Type 1 is AES-128; Tentacle 20.2.4 accepts only type 2 (32 bytes) and refuses the other with EACCES.
    Layout: le16 type, le32 seconds, le32 nanoseconds, le16 length, secret.
    """
    raw = base64.b64decode(pattern)
    kind, length = struct.unpack_from("<h", raw, 0)[0], struct.unpack_from("<h", raw, 10)[0]
    return base64.b64encode(
        struct.pack("<hiih", kind, int(time.time()), 0, length) + os.urandom(length)
    ).decode()


def keyring(topology: Topology, pattern: str) -> str:
    """Return the key and capabilities of every daemon and the administrator: `ceph-mon --mkfs` takes all at once."""
    everything = {who: "allow *" for who in ("mon", "osd", "mds", "mgr")}
    caps: Dict[str, Dict[str, str]] = {"mon.": {"mon": "allow *"}, "client.admin": everything}
    for node in topology.nodes.values():
        if node.mgr:
            caps[f"mgr.{node.name}"] = {"mon": "allow profile mgr", "osd": "allow *", "mds": "allow *"}
    for osd in topology.osds:
        caps[f"osd.{osd}"] = {"mon": "allow profile osd", "mgr": "allow profile osd", "osd": "allow *"}
    for node in topology.nodes.values():
        if node.rgw:
            caps[f"client.{node.name}"] = {"mon": "allow rw", "osd": "allow rwx", "mgr": "allow rw"}
    lines: List[str] = []
    for entity, rights in caps.items():
        lines += [f"[{entity}]", f"\tkey = {key_like(pattern)}"]
        lines += [f'\tcaps {who} = "{capability}"' for who, capability in rights.items()]
    return "\n".join(lines) + "\n"


_SERVER = """\
Port 22
ListenAddress 0.0.0.0
PidFile /run/sshd.pid
HostKey /root/.ssh/host_ed25519
AuthorizedKeysFile /root/.ssh/authorized_keys
PermitRootLogin yes
PubkeyAuthentication yes
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
# The lab's folder belongs to whoever started it.
StrictModes no
# pdsh and CBT open many sessions at once.
MaxStartups 200:30:400
MaxSessions 200
PrintMotd no
Subsystem sftp internal-sftp
SetEnv {environment}
"""

_CLIENT = """\
Host *
  User root
  IdentityFile /root/.ssh/id_ed25519
  BatchMode yes
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
  ConnectTimeout 5
  ServerAliveInterval 5
  ServerAliveCountMax 2
  GSSAPIAuthentication no
"""

#: A command over a connection that stands already takes 12 ms instead of 200: on two cores that is the
#: difference between measuring a cluster and measuring ssh. The price: up to 10 s to notice a crashed node.
_MULTIPLEX = """\
  ControlMaster auto
  ControlPath /run/ssh-%C
  ControlPersist 600
"""


def write_tls(config: Path, topology: Topology) -> bool:
    """Make a certificate for all RGWs, which is its own authority; returns False without openssl."""
    names = [node.name for node in topology.nodes.values() if node.rgw]
    if not names or shutil.which("openssl") is None:
        return False
    key, authority = config / TLS_KEY, config / TLS_AUTHORITY
    alternatives = ",".join(f"DNS:{name},IP:{topology.nodes[name].address}" for name in names)
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    argv += ["-days", "3650", "-subj", "/CN=lab", "-addext", f"subjectAltName={alternatives}"]
    with open(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        argv += ["-keyout", "-", "-out", str(authority)]
        result = subprocess.run(argv, stdout=file, stderr=subprocess.PIPE, timeout=60)
        if result.returncode:
            raise LabError(f"openssl made no certificate: {result.stderr.decode(errors='replace').strip()}")
        file.write(authority.read_bytes())
    return True


def write_links(folder: Path) -> None:
    """Make a folder with this project as it would be installed, in links: another Python than ours imports it there."""
    shutil.rmtree(folder, ignore_errors=True)
    package, home = folder / "cbt_plugins", Path(str(cbt_plugins.__file__)).resolve().parent
    package.mkdir(parents=True)
    parts = {path.name: path for path in home.iterdir() if path.name != "__pycache__"}
    for name in ("monitors", "tools"):  # beside the package in a checkout
        parts.setdefault(name, home.parent / name)
    for name, path in parts.items():
        (package / name).symlink_to(path)
    distribution = metadata.distribution("cbt-plugins")
    dist_info = folder / f"cbt_plugins-{distribution.version}.dist-info"
    dist_info.mkdir()
    for name in ("METADATA", "entry_points.txt"):
        (dist_info / name).write_text(distribution.read_text(name) or "")


def write_ssh(directory: Path, topology: Topology, environment: Mapping[str, str]) -> None:
    """Fill DIR/ssh, which every node shows as /root/.ssh, and DIR/etc/hosts."""
    home = directory / "ssh"
    home.mkdir(mode=0o700, exist_ok=True)
    for name in ("id_ed25519", "host_ed25519"):
        (home / name).unlink(missing_ok=True)
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", str(home / name)]
        result = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if result.returncode:  # also where /etc/passwd has no line for this user, or cannot be read
            raise LabError(f"ssh-keygen made no key: {(result.stderr or result.stdout).strip()}")
    shutil.copy(home / "id_ed25519.pub", home / "authorized_keys")
    given = " ".join(f'{name}="{value}"' for name, value in environment.items())
    (home / "sshd_config").write_text(_SERVER.format(environment=given))
    (home / "config").write_text(_CLIENT + (_MULTIPLEX if topology.mux else ""))
    (home / "config").chmod(0o600)
    hosts = ["127.0.0.1 localhost", *(f"{node.address} {node.name}" for node in topology.nodes.values())]
    (directory / "etc" / "hosts").write_text("\n".join(hosts) + "\n")
