from __future__ import annotations

import base64
import configparser
import shutil
import ssl
import struct
from pathlib import Path

import pytest

from cbt_plugins.tools.lab.ceph_conf import (
    ceph_conf,
    key_like,
    keyring,
    pool_commands,
    runtime_commands,
)
from cbt_plugins.tools.lab.node_files import write_ssh, write_tls
from cbt_plugins.tools.lab.requirements import LabError
from cbt_plugins.tools.lab.topology import Topology

#: Printed by ceph-authtool --gen-print-key of 16.2.15 (type 1, 16 bytes).
PACIFIC_KEY = base64.b64encode(struct.pack("<hiih", 1, 1700000000, 5, 16) + b"k" * 16).decode()
#: The layout of a Tentacle key (type 2, 32 bytes).
TENTACLE_KEY = base64.b64encode(struct.pack("<hiih", 2, 1700000000, 5, 32) + b"k" * 32).decode()


def parsed(text: str) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(strict=True)
    parser.read_string(text)
    return parser


def test_every_rgw_has_nagle_switched_off() -> None:
    conf = parsed(ceph_conf(Topology(rgws=3), "f"))
    assert [conf[f"client.rgw{i}"]["rgw_frontends"] for i in (1, 2, 3)] == [
        "beast port=7480 tcp_nodelay=1"
    ] * 3


def test_every_mon_and_mgr_is_known() -> None:
    shape = Topology(mons=3, mgrs=2)
    conf = parsed(ceph_conf(shape, "f"))["global"]
    assert conf["mon_initial_members"] == "node0,node1,node2"
    assert conf["mon_host"] == ",".join(f"[v2:10.77.0.{n}:3300,v1:10.77.0.{n}:6789]" for n in (10, 11, 12))
    assert [name for name in parsed(keyring(shape, PACIFIC_KEY)).sections() if name.startswith("mgr.")] == [
        "mgr.node0",
        "mgr.node1",
    ]


def test_no_run_time_option_stands_in_ceph_conf_where_it_would_win() -> None:
    shape = Topology(out_interval=77)
    conf = parsed(ceph_conf(shape, "f"))
    fixed = {option for section in conf.sections() for option in conf[section]}
    commands = runtime_commands(shape, ["osd_recovery_sleep", "osd_recovery_sleep_degraded_hdd", "osd_delete_sleep"])
    at_run_time = [command.split()[3] for command in commands]
    assert "config set mon mon_osd_down_out_interval 77" in commands
    assert "config set osd osd_recovery_sleep_degraded_hdd 0" in commands and "osd_delete_sleep" not in at_run_time
    assert not fixed & set(at_run_time)


def test_pool_sizes_follow_the_shape() -> None:
    assert parsed(ceph_conf(Topology(), "f"))["global"]["osd_pool_default_size"] == "3"
    small = parsed(ceph_conf(Topology(osd_nodes=1, osds_per_node=1), "f"))["global"]
    assert (small["osd_pool_default_size"], small["osd_crush_chooseleaf_type"]) == ("1", "0")


def test_bucket_data_is_erasure_coded_on_demand() -> None:
    plain, pgs = pool_commands(Topology(data_pgs=64))
    assert "osd pool create default.rgw.buckets.data 64 64 replicated" in plain
    assert pgs == 16 + 4 * 5 + 8 + 64
    coded, _ = pool_commands(Topology(ec=(2, 1)))
    assert coded[0] == "osd erasure-code-profile set lab-ec k=2 m=1 crush-failure-domain=host"
    assert "osd pool create default.rgw.buckets.data 32 32 erasure lab-ec" in coded
    assert "osd pool create rbd 16 16 replicated" in coded


def test_without_rgw_only_rbd_is_made() -> None:
    assert pool_commands(Topology(rgws=0))[0] == [
        "osd pool create rbd 16 16 replicated",
        "osd pool application enable rbd rbd",
    ]


@pytest.mark.parametrize(("pattern", "kind", "length"), [(PACIFIC_KEY, 1, 16), (TENTACLE_KEY, 2, 32)])
def test_keys_are_of_the_type_that_the_release_makes(pattern: str, kind: int, length: int) -> None:
    made = {key_like(pattern) for _ in range(3)}
    assert len(made) == 3
    for key in made:
        raw = base64.b64decode(key)
        assert (struct.unpack("<hiih", raw[:12])[0], struct.unpack("<hiih", raw[:12])[3]) == (kind, length)
        assert len(raw) == 12 + length


def test_keyring_has_a_key_for_every_daemon() -> None:
    ring = parsed(keyring(Topology(osd_nodes=1, osds_per_node=2, rgws=1), PACIFIC_KEY).replace("\t", ""))
    assert ring.sections() == ["mon.", "client.admin", "mgr.node0", "osd.0", "osd.1", "client.rgw1"]
    assert ring["client.rgw1"]["caps osd"] == '"allow rwx"'
    assert len({ring[name]["key"] for name in ring.sections()}) == 6


def test_ssh_keygen_says_why_it_makes_no_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "ssh-keygen").write_text("#!/bin/sh\necho No user exists for uid 7 >&2; exit 255\n")
    (tmp_path / "ssh-keygen").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    (tmp_path / "lab").mkdir()
    with pytest.raises(LabError, match="ssh-keygen made no key: No user exists for uid 7"):
        write_ssh(tmp_path / "lab", Topology(), {})


def test_a_certificate_for_all_rgws(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl: apt-get install openssl")
    assert write_tls(tmp_path, Topology(rgws=2)) and not write_tls(tmp_path, Topology(rgws=0))
    assert (tmp_path / "rgw.pem").stat().st_mode & 0o777 == 0o600
    assert "PRIVATE" not in (tmp_path / "rgw-ca.pem").read_text()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "rgw.pem")
    conf = parsed(ceph_conf(Topology(rgws=2), "f", tls=True))
    assert conf["client.rgw2"]["rgw_frontends"].endswith("ssl_port=7443 ssl_certificate=/etc/ceph/rgw.pem")
