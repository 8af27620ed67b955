"""`cbt-tools init`, on the recorded replies of clusters of three releases, and on what these could be."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, Sequence
from unittest.mock import Mock

import pytest
import yaml
from recorded_cluster import Recorded, connected

from cbt_plugins.cluster.ceph_programs import readable
from cbt_plugins.cluster.rgw_frontends import Gateway, listeners_of
from cbt_plugins.cluster.transports.local import Local
from cbt_plugins.cluster.transports.transport import Result
from cbt_plugins.config.file_check import load_file
from cbt_plugins.tools.__main__ import main
from cbt_plugins.tools.init.cycle import entries_of_cycle

RELEASES = ("pacific", "reef", "tentacle")
#: questions of which the replies are read when the file is made
_READ_LATE = ("versions", "osd tree", "df detail", "status", "osd dump")
Change = Callable[[Dict[str, Any]], Any]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Recorded:
    return connected(monkeypatch, getattr(request, "param", "reef"))


def section(file: Path) -> Any:
    return yaml.safe_load(file.read_text())["benchmarks"]["rgwtest"]


@pytest.mark.parametrize("cluster", RELEASES, indirect=True)
def test_a_file_for_each_release(cluster: Recorded, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "my.yaml"
    assert main(["init", "--head", "perf@node0:2222", "--clients", "c1,c2", "-o", str(file)]) == 0
    out, err = capsys.readouterr()
    assert err == "" and "Run 1 of 1: rgwtest" in out
    assert out.endswith(f"written: {file}\nnext: cbt-tools plan {file} --live\n")
    data = yaml.safe_load(file.read_text())
    assert data["cluster"] == {
        "user": "perf",
        "head": "node0:2222",
        "clients": ["c1", "c2"],
        "osds": ["node1", "node2", "node3", "node4"],
        "mons": ["node0"],
        "rgws": ["rgw1", "rgw2"],
        "mgrs": ["node0"],
        "use_existing": True,
        "iterations": 1,
        "tmp_dir": "/var/tmp/cbt",
    }
    assert section(file)["s3"] == {"urls": ["http://rgw1:7480", "http://rgw2:7480"], "user": "cbt-plugins"}
    text = file.read_text()
    assert "# 8 OSDs on 4 hosts (hdd), 80 GiB raw, " in text
    assert "# pool default.rgw.buckets.data: 3 copies over 4 hosts, 32 PGs, MAX AVAIL 2" in text
    assert "HEALTH_OK" in text and "WARNING" not in text
    assert cluster.probed == ["c1", "c2"]


def test_a_file_for_a_cluster_of_cephadm(cluster: Recorded, tmp_path: Path) -> None:
    file = tmp_path / "my.yaml"
    assert main(["init", "--cephadm", "root@node1", "--clients", "c1", "-o", str(file)]) == 0
    data = yaml.safe_load(file.read_text())["cluster"]
    assert (data["user"], data["head"], data["ceph"]) == ("root", "node1", "cephadm")
    asked = [command for command in cluster.commands if "ceph" in readable(command)]
    assert asked and all("cephadm shell -- " in readable(command) for command in asked)
    assert "node1 # has cephadm" in " ".join(file.read_text().split())


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "no cluster is named: give --head NODE or --cephadm NODE or --context NAME"),
        (("--head", "a", "--cephadm", "b"), "several clusters are named: "),
        (("--head", "a", "--context", "b"), "several clusters are named: "),
    ],
)
def test_one_cluster_is_named(
    cluster: Recorded, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: Sequence[str], text: str
) -> None:
    assert main(["init", *words, "-o", str(tmp_path / "my.yaml")]) == 2
    assert text in capsys.readouterr().err and cluster.commands == []


def test_a_client_with_its_own_user_and_port(cluster: Recorded, tmp_path: Path) -> None:
    cluster.silent.append("c1")
    file = tmp_path / "my.yaml"
    assert main(["init", "--head", "node0", "--clients", "load@c1:2222", "-o", str(file)]) == 0
    assert cluster.sections[0]["clients"] == ["load@c1:2222"]
    assert yaml.safe_load(file.read_text())["cluster"]["clients"] == ["load@c1:2222"]
    assert "# EDIT: cannot be reached: load@c1:2222" in file.read_text()


@pytest.mark.parametrize("address", ["[2001:db8::11]:6801/1", "[v2:[2001:db8::11]:6800/1,v1:[2001:db8::11]:6801/1]"])
def test_the_address_of_a_node_that_cannot_be_reached(
    cluster: Recorded, tmp_path: Path, capsys: pytest.CaptureFixture[str], address: str
) -> None:
    cluster.silent.append("node1")
    for row in cluster.replies["osd metadata"]:
        row["front_addr"] = address
    assert main(["init", "--head", "node0", "--clients", "c1", "-o", str(tmp_path / "my.yaml")]) == 0
    assert capsys.readouterr().err.endswith("; Ceph reports the address 2001:db8::11\n")


@pytest.mark.parametrize("error", [KeyError("getpwuid(): uid not found: 7"), OSError("No username set")])
def test_a_user_id_without_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    monkeypatch.setattr("getpass.getuser", Mock(side_effect=error))
    assert main(["init", "--head", "node0:22", "-o", str(tmp_path / "my.yaml")]) == 2
    assert "--head: name the user: USER@node0:22" in capsys.readouterr().err
    assert Local({"user": "root"}, {}).reaches("localhost") is False and Local({}, {}).reaches("localhost") is True


def test_an_authority_without_https(cluster: Recorded, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for row in gateways(cluster.replies):
        row["frontend_config#0"] = "beast port=80"
    words = ["init", "--head", "node0", "--clients", "c1", "--ca-file", "/etc/hosts", "-o", str(tmp_path / "my.yaml")]
    assert main(words) == 0
    assert "Warning: --ca-file is not used" in capsys.readouterr().err
    assert "ca_file" not in section(tmp_path / "my.yaml")["s3"]


def test_nothing_is_changed(cluster: Recorded, tmp_path: Path) -> None:
    main(["init", "--head", "node0", "--clients", "c1", "--user", "cbt", "-o", str(tmp_path / "my.yaml")])
    words = {word for command in cluster.commands for word in shlex.split(command.replace(";", " "))}
    assert not words & {"set", "create", "rm", "delete", "modify", "enable", "put", "add", "mkdir", "commit", "update"}
    assert section(tmp_path / "my.yaml")["s3"]["user"] == "cbt" and "rgw" not in section(tmp_path / "my.yaml")
    assert "SK" not in (tmp_path / "my.yaml").read_text()


def test_clients_are_a_line_to_edit(cluster: Recorded, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "my.yaml"
    assert main(["init", "--head", "node0", "-o", str(file)]) == 0
    (number,) = [n for n, line in enumerate(file.read_text().splitlines(), 1) if "# EDIT" in line]
    assert file.read_text().splitlines()[number - 1].startswith("  clients: ")
    assert f"next: edit line {number} (marked EDIT), then: " in capsys.readouterr().out
    assert cluster.probed == ["node0"]


def test_an_existing_file_is_kept_and_no_cluster_asked(cluster: Recorded, tmp_path: Path) -> None:
    file = tmp_path / "my.yaml"
    file.symlink_to(tmp_path / "nowhere")
    assert main(["init", "--head", "node0", "-o", str(file)]) == 2
    assert cluster.commands == [] and not file.exists()


@pytest.mark.parametrize(
    ("part", "end", "text"),
    [
        ("fsid", Result("", "sh: 1: ceph: not found\n", 127), "ceph: not found; install the program on node0"),
        ("fsid", Result("", "x\n[errno 13] RADOS denied\n", 13), "[errno 13] RADOS denied; perf on node0 needs "),
        ("fsid", Result("", "No route to host", 255), "head node0: No route to host"),
        ("zone get", Result("", "sh: radosgw-admin: not found", 127), "radosgw-admin on node0: sh: radosgw-admin: not"),
        ("zone get", Result("", "unable to initialize zone: (2)", 2), "zone: (2); `ceph` works there, so "),
        ("zone get", Result("", "bash: module: command not found\nzone: (2)", 2), "zone: (2); `ceph` works there, so "),
        ("zone get", Result("", "sudo: radosgw-admin: command not found", 1), "not found; install the program on "),
        ("zonegroup get", Result("", "failed to init zonegroup", 2), "exit status 2: failed to init zonegroup"),
        ("printf", Result("{}", "Error EACCES: access denied", 13), "Error EACCES: access denied"),
    ],
)
def test_a_cluster_that_does_not_answer(
    cluster: Recorded, tmp_path: Path, capsys: pytest.CaptureFixture[str], part: str, end: Result, text: str
) -> None:
    cluster.fails[part] = end
    if part == "printf":
        cluster.fails["osd dump -f json"] = end
    assert main(["init", "--head", "perf@node0", "-o", str(tmp_path / "my.yaml")]) == 1
    assert text in capsys.readouterr().err and not (tmp_path / "my.yaml").exists()


def test_sudo_where_only_root_may_ask(cluster: Recorded, tmp_path: Path) -> None:
    cluster.fails["ceph -c /etc/ceph/ceph.conf --connect-timeout 20 fsid"] = Result("", "permission denied", 13)
    cluster.fails = {"sudo -n ceph": Result("fsid", "", 0), **cluster.fails}
    # the answers themselves are the recorded ones
    original, cluster.reply = cluster.reply, lambda node, command: (  # type: ignore[method-assign]
        original(node, command.replace("sudo -n ceph", "ceph")) if "fsid" not in command else original(node, command)
    )
    assert main(["init", "--head", "perf@node0", "-o", str(tmp_path / "my.yaml")]) == 0
    data = yaml.safe_load((tmp_path / "my.yaml").read_text())["cluster"]
    assert (data["ceph_cmd"], data["radosgw-admin_cmd"]) == ("sudo -n ceph", "sudo -n radosgw-admin")


def gateways(replies: Dict[str, Any]) -> List[Dict[str, Any]]:
    rows = replies["service dump"]["services"]["rgw"]["daemons"]
    return [row["metadata"] for row in rows.values() if isinstance(row, dict)]


def only_tls(replies: Dict[str, Any]) -> None:
    for row in gateways(replies):
        row["frontend_config#0"] = "beast ssl_port=443 ssl_certificate=config://rgw/cert"


def one_scheme_each(replies: Dict[str, Any]) -> None:
    for row, port in zip(gateways(replies), ("port=80", "ssl_port=443")):
        row["frontend_config#0"] = f"beast {port}"


def no_gateway(replies: Dict[str, Any]) -> None:
    replies["service dump"]["services"].pop("rgw")


def other_zone(replies: Dict[str, Any]) -> None:
    gateways(replies)[0]["zone_name"] = "west"


def second_zone(replies: Dict[str, Any]) -> None:
    replies["zonegroup get"]["master_zone"] = "x"
    replies["zonegroup get"]["zones"].append({"id": "x", "name": "east", "endpoints": []})


def reply_with(question: str, reply: Any, replies: Dict[str, Any]) -> None:
    replies[question] = reply


def each_gateway(name: str, value: str, replies: Dict[str, Any]) -> None:
    for row in gateways(replies):
        row[name] = value


def no_pool(replies: Dict[str, Any]) -> None:
    pools = replies["osd dump"]["pools"]
    replies["osd dump"]["pools"] = [pool for pool in pools if not pool["pool_name"].endswith("buckets.data")]
    pools = replies["df detail"]["pools"]
    replies["df detail"]["pools"] = [pool for pool in pools if not pool["name"].endswith("buckets.data")]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda r: r["zonegroup get"].update(endpoints=["http://lb:80"]), "front of the gateways: http://lb:80; "),
        (lambda r: r["zonegroup get"]["zones"][0].update(endpoints=["https://lb"]), "the gateways: https://lb; "),
        (lambda r: r.update({"orch ps": [{"daemon_type": "haproxy", "hostname": "h1"}]}), "haproxy on h1"),
        (lambda r: gateways(r)[0].update({"frontend_config#0": "beast endpoint=127.0.0.1:80"}), "only from its own"),
        (one_scheme_each, "has no port for http: "),
        (lambda r: r["realm list"].update(realms=["a", "b"]), "2 realms: a, b; the file uses default/default"),
        (lambda r: r["zonegroup list"].update(zonegroups=["default", "eu"]), "2 zonegroups: default, eu"),
        (second_zone, "not the master zone, which is zone east: only the master makes users, so name an exi"),
        (lambda r: r["zonegroup get"].update(is_master="false"), "master zone, which is a zone of another zonegroup"),
        (other_zone, "not in the file: gateways of other zones: west"),
        (lambda r: r["mon metadata"][0].update(hostname="a b"), "mon.node0 on 'a b', which is not a host name"),
        (only_tls, "CERTIFICATE_VERIFY_FAILED"),
    ],
)
def test_what_is_not_plain_is_said_twice(
    cluster: Recorded, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Change, text: str
) -> None:
    change(cluster.replies)
    file = tmp_path / "my.yaml"
    assert main(["init", "--head", "node0", "--clients", "c1", "-o", str(file)]) == 0
    comments = " ".join(file.read_text().replace("\n#  ", "").split())
    warnings = [line for line in capsys.readouterr().err.splitlines() if line.startswith("Warning: ")]
    assert any(text in line for line in warnings), warnings
    assert all(f"# WARNING: {' '.join(line[9:].split())}" in comments for line in warnings)
    load_file(file)


def test_endpoints_of_the_gateways_are_no_load_balancer(
    cluster: Recorded, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = ["http://rgw1.example.org:7480", "http://10.77.1.2:7480/", "https://rgw2:7443"]
    cluster.replies["zonegroup get"]["endpoints"] = own
    assert main(["init", "--head", "node0", "--clients", "c1", "-o", str(tmp_path / "my.yaml")]) == 0
    assert capsys.readouterr().err == ""


def test_the_ingress_of_nfs_is_no_load_balancer_of_gateways(
    cluster: Recorded, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    services = {"h1": "ingress.nfs.home", "h2": "ingress.rgw.s3", "h3": "nfs.home"}
    types = {"h1": "haproxy", "h2": "keepalived", "h3": "nfs"}
    cluster.replies["orch ps"] = [
        {"daemon_type": types[host], "hostname": host, "service_name": name} for host, name in services.items()
    ]
    assert main(["init", "--head", "node0", "--clients", "c1", "-o", str(tmp_path / "my.yaml")]) == 0
    assert "haproxy on h2; the file has" in capsys.readouterr().err


def test_certificates_that_nobody_trusts(cluster: Recorded, tmp_path: Path) -> None:
    only_tls(cluster.replies)
    file = tmp_path / "my.yaml"
    assert main(["init", "--head", "node0", "--clients", "c1", "-o", str(file)]) == 0
    assert section(file)["s3"]["urls"] == ["https://rgw1:443", "https://rgw2:443"]
    (line,) = [line for line in file.read_text().splitlines() if line.startswith("      # ca_file: ")]
    assert "EDIT" in line and "CN = Example" in line and "\x1b" not in line
    for row in gateways(cluster.replies):
        row["frontend_config#0"] = "beast ssl_endpoint=[2001:db8::1]:443"
    assert main(["init", "--head", "node0", "--clients", "c1", "-o", str(tmp_path / "ipv6.yaml")]) == 0
    assert any("-connect '[2001:db8::1]:443'" in command for command in cluster.commands)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (no_gateway, "shows no running gateway (radosgw)"),
        (partial(each_gateway, "zone_name", "west"), "gateways are of other zones than radosgw-admin's zone default: "),
        (partial(each_gateway, "frontend_config#0", "beast"), "no gateway of radosgw-admin's zone default has a port"),
        (lambda r: r["zone get"].pop("placement_pools"), "could not parse a reply of node0 (KeyError"),
        *((partial(reply_with, question, {}), "could not parse a reply of node0 (KeyError") for question in _READ_LATE),
        (partial(reply_with, "mgr metadata", None), "could not parse a reply of node0 (TypeError"),
        (partial(reply_with, "versions", {"overall": {"ceph": 1}}), "could not parse a reply of node0 (IndexError"),
    ],
)
def test_a_cluster_that_no_file_is_for(
    cluster: Recorded, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Change, text: str
) -> None:
    change(cluster.replies)
    assert main(["init", "--head", "node0", "-o", str(tmp_path / "my.yaml")]) == 1
    assert text in capsys.readouterr().err and not (tmp_path / "my.yaml").exists()
    if change is no_gateway:
        assert not any("radosgw-admin" in command for command in cluster.commands)


def test_a_name_of_a_cluster_cannot_leave_its_comment(cluster: Recorded, tmp_path: Path) -> None:
    for row in gateways(cluster.replies):
        row["frontend_config#0"] += "\ncluster: {head: evil}\n"
    cluster.replies["zone get"]["name"] = "default"
    file = tmp_path / "my.yaml"
    assert main(["init", "--head", "node0", "--clients", "c1", "-o", str(file)]) == 0
    assert yaml.safe_load(file.read_text())["cluster"]["head"] == "node0"


def test_the_cycle_follows_space_and_devices(cluster: Recorded, tmp_path: Path) -> None:
    """A small cluster is filled by a share, with a mix that adds nothing; a large one by time, as in the studies."""
    assert main(["init", "--head", "node0", "--clients", "c1", "-o", str(tmp_path / "small.yaml")]) == 0
    small = section(tmp_path / "small.yaml")
    assert small["fill"] == {"max_avail": "20%"} and small["mix"]["put"] == small["mix"]["delete"]
    for pool in cluster.replies["df detail"]["pools"]:
        pool["stats"]["max_avail"] *= 10_000
    clients = ",".join(f"c{i}" for i in range(12))
    assert main(["init", "--head", "node0", "--clients", clients, "-o", str(tmp_path / "large.yaml")]) == 0
    large = section(tmp_path / "large.yaml")
    assert large["fill"] == {"duration": "15m"} and "mix" not in large and large["drivers_per_size"] == 3
    no_pool(cluster.replies)
    assert main(["init", "--head", "node0", "--clients", "c1", "-o", str(tmp_path / "new.yaml")]) == 0
    assert "default.rgw.buckets.data: does not exist yet" in (tmp_path / "new.yaml").read_text()


@pytest.mark.parametrize(("device_class", "goal"), [("hdd", {"duration": "15m"}), ("ssd", {"max_avail": "20%"})])
def test_a_fill_by_time_ends_below_the_promised_share(device_class: str, goal: Dict[str, str]) -> None:
    """15 minutes of 250 MB/s are 6 % of these devices; Ceph gives the class ssd to NVMe devices too, of 4 GB/s."""
    devices, available = [device_class] * 48, 48 * 3.84e12 * 0.95 / 3
    cluster: Any = SimpleNamespace(devices=devices, usable=1 / 3, available=available)
    (fill,) = (entry for entry in entries_of_cycle(cluster, 4) if entry.key == "fill")
    assert fill.value == goal


@pytest.mark.parametrize(
    ("default", "storage_class"),
    [("default-placement", "STANDARD"), ("default-placement/COLD", "COLD")],
)
def test_the_pool_of_objects_may_have_a_namespace_or_a_storage_class(
    cluster: Recorded, tmp_path: Path, default: str, storage_class: str
) -> None:
    cluster.replies["zonegroup get"]["default_placement"] = default
    pools = {"STANDARD": {"data_pool": "standard"}, storage_class: {"data_pool": "default.rgw.buckets.data:my-store"}}
    cluster.replies["zone get"]["placement_pools"][0]["val"]["storage_classes"] = pools
    assert main(["init", "--head", "node0", "--clients", "c1", "-o", str(tmp_path / "my.yaml")]) == 0
    text = (tmp_path / "my.yaml").read_text()
    assert "# pool default.rgw.buckets.data: 3 copies" in text and "does not exist" not in text


@pytest.mark.parametrize(
    ("frontend", "urls"),
    [
        ("beast port=7480 tcp_nodelay=1 ssl_port=7443 ssl_certificate=/a", ["http://h:7480", "https://h:7443"]),
        ("beast endpoint=10.0.0.5:8080 ssl_endpoint=10.0.0.5", ["http://10.0.0.5:8080", "https://10.0.0.5:443"]),
        ("beast endpoint=[::]:80 endpoint=0.0.0.0:80", ["http://h:80"]),
        ("beast endpoint=[2001:db8::1]:80", ["http://[2001:db8::1]:80"]),
        ("civetweb port=80+10.0.0.5:8443s num_threads=100", ["http://h:80", "https://10.0.0.5:8443"]),
        ("civetweb port=443s ssl_certificate=/a", ["https://h:443"]),
        (f"beast endpoint=127.0.0.1:80 port=x port=99999 port=² port={'9' * 5000}", []),
        ("", []),
    ],
)
def test_ports_of_frontends(frontend: str, urls: List[str]) -> None:
    gateway = Gateway("a", "h", "z", "", (frontend,))
    assert [listener.url("h") for listener in gateway.listeners] == urls
    assert gateway.is_hidden == (frontend.startswith("beast endpoint=127") and bool(list(listeners_of(frontend))))


def test_keys_of_a_profile(
    cluster: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    file, words = tmp_path / "my.yaml", ("init", "--head", "node0", "--clients", "c1", "--profile", "lab", "-o")
    assert main([*words, str(file)]) == 2
    assert "Error: --profile: " in capsys.readouterr().err and cluster.commands == []
    (tmp_path / "credentials").write_text("[lab]\naws_access_key_id = AK\naws_secret_access_key = SECRET\n")
    assert main([*words, str(file)]) == 0
    assert section(file)["s3"] == {"urls": ["http://rgw1:7480", "http://rgw2:7480"], "profile": "lab"}
    assert "rgw" not in section(file) and "SECRET" not in file.read_text()


@pytest.mark.parametrize(
    ("url", "shown"),
    [("http://rgw2:7480/", ""), ("http://u:PASSWORD@s3.example:80", "s3.example:80"), ("https://rgw1:443", "https://rgw1:443")],
)
def test_endpoint_and_region_of_aws_tools(
    cluster: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, shown: str
) -> None:
    """The region is that of the file; an endpoint that is no gateway, such as a load balancer, is a remark."""
    (tmp_path / "credentials").write_text("[lab]\naws_access_key_id = AK\naws_secret_access_key = SECRET\n")
    (tmp_path / "config").write_text(f"[profile lab]\nregion = eu-lab-1\nendpoint_url = {url}\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    for variable in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(variable, raising=False)
    by_profile, by_user = tmp_path / "profile.yaml", tmp_path / "user.yaml"
    words = ["init", "--head", "node0", "--clients", "c1", "-o"]
    assert main([*words, str(by_profile), "--profile", "lab"]) == 0
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
    monkeypatch.setenv("AWS_REGION", "eu-lab-1")
    assert main([*words, str(by_user)]) == 0
    assert section(by_profile)["s3"]["region"] == "eu-lab-1" and "region" not in section(by_user)["s3"]
    for file in (by_profile, by_user):
        text = " ".join(file.read_text().replace("\n#", "").split())
        assert section(file)["s3"]["urls"] == ["http://rgw1:7480", "http://rgw2:7480"] and "PASSWORD" not in text
        assert ("is no gateway of this cluster" in text) is (f"WARNING: {shown} of AWS_ENDPOINT" in text) is bool(shown)
