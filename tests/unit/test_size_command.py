"""`cbt-tools size`: numbers in, numbers and words out, and clear words where numbers cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict

import pytest

from cbt_plugins.ceph_df import Space
from cbt_plugins.config.units import about_link, parse_link
from cbt_plugins.tools.__main__ import main

DATA = Path(__file__).parents[1] / "data" / "ceph"
STUDY = "h(1|1|50,64|64|15,8192|8192|15,65536|65536|15,1048576|1048576|5)KB"


def size(capsys: pytest.CaptureFixture[str], text: str, *more: str) -> Dict[str, Any]:
    """The answer as data."""
    assert main(["size", *text.split(), *more, "--format", "json"]) == 0
    answer: Dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (answer.pop("version"), answer.pop("what")) == (1, text.split()[0])
    return answer


def words(capsys: pytest.CaptureFixture[str], text: str, *more: str) -> str:
    """The answer in words."""
    assert main(["size", *text.split(), *more]) == 0
    return capsys.readouterr().out


def test_capacity_of_the_study(capsys: pytest.CaptureFixture[str]) -> None:
    found = size(capsys, "capacity --available 332TiB --fill 30% --buckets 5 --per-day 864000", "--sizes", STUDY)
    assert (found["mean_size"], found["objects_per_bucket"], found["per_second"]) == (63_498_100, 344_927, 10.0)
    found = size(capsys, "capacity --available 332TiB --fill 30% --buckets 5 --cosbench", "--sizes", STUDY)
    assert (found["mean_size"], found["objects_per_bucket"], found["objects"]) == (53_012_350, 413_154, 2_065_770)
    text = words(capsys, "capacity --available 332TiB --fill 30% --buckets 5 --cosbench", "--sizes", STUDY)
    assert "50.6 MiB (53.01 MB), COSBench's weights 51, 15, 15, 15, 4\n" in text
    assert "413,154 in each of 5, 2,065,770 in total, fill 30.0 % of the available space\n" in text


def test_capacity_from_raw_space(capsys: pytest.CaptureFixture[str]) -> None:
    found = size(capsys, "capacity --raw 524TiB --pool 4+2 --sizes 1KiB --fill 10%")
    assert found["available"] / 2**40 == pytest.approx(331.8667, abs=1e-4)
    assert (found["raw_per_object"], found["raw_share"]) == (24 << 10, 24)
    assert found["raw_used"] == pytest.approx(0.1 * 4 / 6 * 0.95 * 24)  # 152 % of the raw space: they do not fit
    assert size(capsys, "capacity --raw 174TB --pool 3 --full 100%")["available"] == pytest.approx(58e12)
    assert size(capsys, "capacity --raw 1TiB --pool 4+2 --sizes 1KiB --min-alloc 64KiB")["raw_per_object"] == 384 << 10


def test_sizes_with_weights(capsys: pytest.CaptureFixture[str]) -> None:
    assert size(capsys, "capacity --sizes 4KiB:50,8KiB-16KiB:50")["mean_size"] == 8192
    assert size(capsys, "capacity --sizes 4MiB")["mean_size"] == 4 << 20


@pytest.mark.parametrize("release", ["pacific", "reef", "tentacle"])
def test_what_ceph_df_says(release: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    file = DATA / f"{release}-df.json"
    df = json.loads(file.read_text())
    pool = next(p for p in df["pools"] if p["name"] == "default.rgw.buckets.data")
    found = size(capsys, f"capacity --df {file} --pool 3")
    assert found["available"] == pool["stats"]["max_avail"]
    assert found["raw_used_before"] == pytest.approx(df["stats"]["total_used_raw_ratio"], abs=1e-4)
    assert 0.9 < found["of_expected"] < 1.1  # the model of MAX AVAIL against Ceph's own
    assert size(capsys, f"capacity --df {file} --data-pool default.rgw.log")["pool"] == "default.rgw.log"
    with file.open() as text:
        monkeypatch.setattr("sys.stdin", text)
        assert size(capsys, "capacity --df -")["available"] == pool["stats"]["max_avail"]


def test_a_balanced_cluster_has_all_that_is_expected_however_full_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """MAX AVAIL of Ceph: (full ratio x size - used) / copies, of the fullest OSD (PGMap::get_rule_avail)."""
    file = tmp_path / "df.json"
    for used, available in ((800, 50), (940, 3), (960, 0)):
        stats = {"stored": used // 3, "bytes_used": used, "max_avail": available, "objects": 1}
        totals = {"total_bytes": 1000, "total_used_raw_bytes": used}
        file.write_text(json.dumps({"stats": totals, "pools": [{"name": "x.buckets.data", "stats": stats}]}))
        share = size(capsys, f"capacity --df {file} --pool 3")["of_expected"]
        assert share is None if used == 960 else share == pytest.approx(1.0, abs=0.11)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        '{"pools": [{"name": "a", "stats": "text"}]}',
        '{"pools": [{"name": "a", "stats": {"bytes_used": 1, "max_avail": 1e400, "objects": 1}}]}',
    ],
)
def test_json_that_is_no_ceph_df(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "df.json"
    file.write_text(text)
    assert main(["size", "capacity", "--df", str(file)]) == 2
    assert f"{file}: not an output of `ceph df -f json` (" in capsys.readouterr().err


def test_df_before_nautilus() -> None:
    """`stored` is what bytes_used was then."""
    stats = {"bytes_used": 7, "max_avail": 93, "objects": 1}
    space = Space.parse({"stats": {"total_bytes": 0, "total_used_bytes": 0}, "pools": [{"name": "x", "stats": stats}]})
    assert (space.pools["x"].stored, space.pools["x"].used, space.used_share) == (7, 7, 0.0)


def test_pgs_of_the_studies(capsys: pytest.CaptureFixture[str]) -> None:
    found = size(capsys, "pgs --osds 192 --data 4+2")
    assert {pool["name"]: pool["pgs"] for pool in found["pools"]}["default.rgw.buckets.data"] == 4096
    assert found["members_per_osd"] == pytest.approx((4096 * 6 + 256 * 3 + 5 * 128 * 3) / 192)
    found = size(capsys, "pgs --osds 60 --pool data=50/3 --pool index=50/3 --target 400")
    assert [pool["pgs"] for pool in found["pools"]] == [4096, 4096]
    text = words(capsys, "pgs --osds 60 --pool data=50/3 --pool index=50/3 --target 400")
    assert "410 PG members on each of 60 OSDs; the pools hold 100 % of the data\n" in text
    assert "more than mon_max_pg_per_osd (250 by default)" in text


def test_the_network_of_the_study(capsys: pytest.CaptureFixture[str]) -> None:
    found = size(capsys, "network --nodes 10 --nic 100Gbit --pool 3 --put 18.6GB/s --get 53GB/s")
    assert found["put"]["bytes_per_s"] == pytest.approx(125e9 / 3.8)
    assert found["get"]["transfers"] == pytest.approx(1.8)
    assert found["put"]["measured"] == pytest.approx(0.5654, abs=1e-4)
    assert found["together"] == pytest.approx(0.5654 + 0.7632, abs=1e-3)
    text = words(capsys, "network --nodes 10 --nic 100Gbit --pool 3 --put 18.6GB/s")
    assert "at most 30.6 GiB (32.89 GB)/s, 26.3 % of the OSD nodes' 116 GiB (125 GB)/s\n" in text
    assert "17.3 GiB (18.6 GB)/s measured: 56.5 % of the ceiling\n" in text


def test_other_networks(capsys: pytest.CaptureFixture[str]) -> None:
    found = size(capsys, "network --nodes 8 --nic 25Gbit --pool 4+2 --clients 5 --client-nic 10Gbit")
    assert found["get"]["transfers"] == pytest.approx(1 + 7 / 8 + 3 / 4)
    assert found["get"]["bytes_per_s"] == pytest.approx(6.25e9)
    assert found["get"]["link"] == ["client1", "receives", "public"]
    found = size(capsys, "network --nodes 8 --nic 25Gbit --pool 3 --clients 50 --gateways 0 --cluster-nic 10Gbit")
    assert found["put"]["bytes_per_s"] == pytest.approx(8 * 1.25e9 / 2)
    assert found["put"]["link"][2] == "cluster"
    found = size(capsys, "network --nodes 8 --nic 25Gbit --pool 3 --clients 50 --gateways 2 --gateway-nic 10Gbit")
    assert found["get"]["bytes_per_s"] == pytest.approx(2.5e9)
    assert found["get"]["link"][:2] == ["gateway1", "receives"]
    found = size(capsys, "network --nodes 2 --nic 1Gbit --pool 3 --osds-per-node 4 --apart osd --gateways 0")
    assert found["put"]["transfers"] == pytest.approx(0.5 + 2 * 4 / 7)
    assert "nothing crosses an interface" in words(capsys, "network --nodes 1 --nic 1Gbit --pool 1")


def test_workers(capsys: pytest.CaptureFixture[str]) -> None:
    screen = "--op 25.79/s@616.61ms --op 4.29/s@5.95ms --op 6.91/s@574.48ms --op 6.05/s@16.71ms"
    found = size(capsys, f"workers {screen} --workers 68")
    assert found["in_flight"] == pytest.approx(19.9986, abs=1e-4)
    assert found["deviation"] == pytest.approx(-0.7059, abs=1e-4)
    assert "20.00 requests on average" in words(capsys, f"workers {screen}")
    assert "more than 5 % off" in words(capsys, f"workers {screen} --workers 68")
    assert size(capsys, "workers --workers 68 --latency 0.5s")["throughput"] == 136
    assert size(capsys, "workers --workers 68 --rate 136/s")["latency"] == 0.5


def test_a_sweep_of_workers(capsys: pytest.CaptureFixture[str]) -> None:
    steps = "--step 8@12ms --step 16@30ms --step 32@600ms"
    assert size(capsys, f"workers {steps} --target 500ms") == {"size": 16, "next": 32, "production": 12.8}
    assert "already 8 are too many" in words(capsys, f"workers {steps} --target 1ms")
    assert "32 at most; the sweep has no higher step" in words(capsys, f"workers {steps} --target 2s")


def test_a_mix(capsys: pytest.CaptureFixture[str]) -> None:
    found = size(capsys, "mix --mix get=60,list=10,put=16,delete=14 --keys 400000 --rate 142/s --for 1h")
    assert (found["growth_per_100"], found["steady_occupancy"]) == (2, pytest.approx(16 / 30))
    assert found["occupancy"] == pytest.approx(0.8514, abs=1e-4)
    assert found["objects"] == pytest.approx(0.8514 * 400_000, abs=40)
    assert found["requests_to_steady"] == pytest.approx(5_124_034, abs=1)
    assert found["seconds_to_steady"] == pytest.approx(found["requests_to_steady"] / 142)
    assert "after 1h it is 85.1 % full: 340,554 objects" in words(
        capsys, "mix --mix get=60,list=10,put=16,delete=14 --keys 400000 --rate 142/s --for 1h"
    )
    assert size(capsys, "mix --mix get=100") == {"growth_per_100": 0}
    near = size(capsys, "mix --mix put=50,delete=50 --keys 100 --start 50%")
    assert near["requests_to_steady"] == 0


def test_scaling_and_odds(capsys: pytest.CaptureFixture[str]) -> None:
    found = size(capsys, "scale --nodes 3:5 --gain 55% --latency=-29%")
    assert found["efficiency"] == pytest.approx(0.825)
    assert found["in_flight_change"] == pytest.approx(1.55 * 0.71 - 1)
    found = size(capsys, "odds --nodes 8 --down 2 --pool 4+2")
    assert (found["min_size"], found["inactive"]) == (5, pytest.approx(15 / 28))
    assert size(capsys, "odds --nodes 4 --down 2 --pool 3")["min_size"] == 2
    assert size(capsys, "odds --nodes 4 --down 1 --pool 2")["min_size"] == 1
    assert size(capsys, "odds --nodes 8 --down 2 --pool 4+2 --min-size 4")["inactive"] == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("capacity", "nothing to calculate"),
        ("capacity --raw 5TiB", "--raw needs --pool"),
        ("capacity --raw 5", "5: bytes? write 5B"),
        ("capacity --raw 5T --pool 3", "5T: 5TiB (5497558138880 bytes) or 5TB"),
        ("capacity --raw 5TiB --pool 3 --available 1TiB", "one of --df, --raw and --available"),
        ("capacity --fill 30% --available 5TiB", "--fill needs sizes"),
        ("capacity --fill 30% --sizes 4KiB", "--fill needs sizes"),
        ("capacity --fill 130% --sizes 4KiB", "more than 100%"),
        ("capacity --cosbench --available 1TiB", "--cosbench needs --sizes"),
        ("capacity --sizes 4KiB:x", "write size:weight"),
        ("capacity --sizes 8KiB-4KiB", "write size:weight"),
        ("capacity --sizes h(1|1)KB", "smallest|largest|weight"),
        ("capacity --sizes 4KiB:0", "no sizes with a weight above 0"),
        ("capacity --df /nowhere/df.json", "No such file"),
        ("pgs --osds 10", "no pools: give"),
        ("pgs --osds 0 --data 3", "'0' is not a whole number of 1 or more"),
        ("pgs --osds 3 --data 8+3", "default.rgw.buckets.data: EC 8+3: needs 11 OSDs, there are 3"),
        ("pgs --osds 2 --pool x=5/3", "needs 3 OSDs, there are 2"),
        ("pgs --osds 10 --pool x", "write NAME=PERCENT/REDUNDANCY"),
        ("pgs --osds 10 --pool x=5/many", "'many' is not a pool"),
        ("network --nodes 3 --nic 25Gbit --pool 4+2", "EC 4+2: needs 6 nodes, there are 3"),
        ("network --nodes 3 --nic 25GB --pool 3", "not the speed of an interface"),
        ("network --nodes 3 --nic 25Gbit --pool 3 --client-nic 1Gbit", "--client-nic needs --clients"),
        ("network --nodes 3 --nic 25Gbit --pool 3 --put fast", "not a size"),
        ("workers", "nothing to calculate"),
        ("workers --step 8@12ms", "needs several --step"),
        ("workers --step 8", "write workers@latency"),
        ("workers --op 150/s", "write throughput@latency"),
        ("workers --workers 5 --latency 12", "seconds? write 12s"),
        ("mix --mix get=60,put=30", "the sum of the mix is 90, not 100"),
        ("mix --mix get", "write operation=percent"),
        ("mix --mix put=100 --rate 5/s", "need a range of keys"),
        ("scale --nodes 5:3 --gain 5%", "more nodes after than before"),
        ("scale --nodes 3 --gain 5%", "write before:after"),
        ("scale --nodes 3:5 --gain 0.5", "not a percentage"),
        ("scale --nodes 3:5 --gain=-100%", "division by zero"),
        ("odds --nodes 5 --down 6 --pool 3", "--down 6 is more than --nodes 5"),
        ("odds --nodes 5 --down 1 --pool 4+2", "needs 6 nodes"),
        ("odds --nodes 5 --down 1 --pool 3 --min-size 4", "min_size 4 is more than the 3"),
    ],
)
def test_clear_words_and_status_2(arguments: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status = main(["size", *arguments.split()])
    except SystemExit as error:
        status = int(str(error.code))
    captured = capsys.readouterr()
    assert (status, captured.out) == (2, "")
    assert text in captured.err
    assert "Traceback" not in captured.err


def test_a_file_that_is_no_df(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "df.json"
    for content in ("", "[]", "{}", '{"pools": [{}]}'):
        file.write_text(content)
        assert main(["size", "capacity", "--df", str(file)]) == 2
        assert "not an output of `ceph df -f json`" in capsys.readouterr().err
    file.write_text((DATA / "reef-df.json").read_text().replace("buckets.data", "buckets.gone"))
    assert main(["size", "capacity", "--df", str(file)]) == 2
    assert "which pool? none of " in capsys.readouterr().err
    assert main(["size", "capacity", "--df", str(file), "--data-pool", "x"]) == 2
    assert "there is no pool 'x'; there are default.rgw.log" in capsys.readouterr().err


def test_speeds_of_interfaces() -> None:
    assert [parse_link(text) for text in ("25Gbit", "1 Gbit/s", "100Mbit")] == [3.125e9, 1.25e8, 1.25e7]
    assert [about_link(speed) for speed in (3.125e9, 1.25e8, 12.5, 0.5)] == [
        "25 Gbit/s",
        "1 Gbit/s",
        "100 bit/s",
        "4 bit/s",
    ]
    for wrong in ("25", "25G", "25GB", "25GiB", "0Gbit", 25):
        with pytest.raises(ValueError, match="interface"):
            parse_link(wrong)
