"""Files that make a lab's cluster: ceph.conf, keyring, commands for its pools. Sizes are fields of `Topology`.

What a test may want to change at run time is set in the monitors' database instead (`RUNTIME`): a value in
ceph.conf would win over `ceph config set`.
"""

from __future__ import annotations

import base64
import os
import struct
import time
from typing import Dict, List, Sequence, Tuple

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

#: in /etc/ceph of every node (made by node_files): key and certificate of the RGWs; the certificate alone
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
