"""Files as a newcomer would write them wrong: each error has its place, and says what to write."""

from __future__ import annotations

from pathlib import Path

import pytest

from cbt_plugins.tools.__main__ import main

HEAD = "cluster: {user: root, head: n0, clients: [c1], osds: [n1, n2], mons: [n0], iterations: 1}\n"
S3 = "s3: {urls: ['http://r1:80'], user: u}"
WARP = HEAD + "benchmarks:\n  warp:\n    " + S3 + "\n    cycle:\n      phases:\n"
RGWTEST = HEAD + "benchmarks:\n  rgwtest:\n    " + S3 + "\n"


def answer(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str], status: int = 2) -> str:
    file = tmp_path / "f.yaml"
    file.write_text(text, encoding="utf-8")
    assert main(["plan", str(file)]) == status
    out, err = capsys.readouterr()
    return (err if status else out).replace(str(tmp_path), "")


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        (HEAD.replace("[c1]", "c1") + "benchmarks: {rgwtest: {}}", "1:42: cluster.clients", "into brackets: [...]"),
        (RGWTEST.replace("['http://r1:80']", "http://r1:80"), "4:16: benchmarks.rgwtest.s3.urls", "into brackets"),
        (RGWTEST + "    keep_data: 'true'\n", "5:16: benchmarks.rgwtest.keep_data", "write it without quotes"),
        (RGWTEST + "    workers: '8'\n", "5:14: benchmarks.rgwtest.workers", "write it without quotes"),
        (RGWTEST + "    fill: {objects: 10k}\n", "benchmarks.rgwtest.fill.objects", "all of its digits"),
        (RGWTEST + "    fault: {kind: stop}\n", "5:5: benchmarks.rgwtest.fault", "unknown key of rgwtest; osdfailure"),
        (WARP + "        fill: {objects: 9}\n", "phases", "must be a list, not a mapping: write - before each"),
        (WARP + "        - hybrid: [duration: 9s]\n", "phases[0].hybrid", "remove the - before its keys"),
        (WARP + "        - hybrid: {duration: 9s, mix: {mix: {get: 1}}}\n", "mix.mix", "move its keys one level out"),
        (WARP + "        - fill: {objects: 9, engine: cbt-load, workers: 8}\n", "fill.workers", "unknown key"),
        (WARP.replace("phases:\n", "- fill: {objects: 9}\n"), "benchmarks.warp.cycle", "write cycle: {phases: [...]}"),
        (HEAD + "benchmarks:\n  - rgwtest: {}\n", "3:3: benchmarks", "not a list: remove the - before its keys"),
        (HEAD.replace("[c1]", "['http://c1']") + "benchmarks: {rgwtest: {}}", "cluster.clients[0]", "without http://"),
    ],
)
def test_each_error_says_where_and_what_to_write(
    text: str, place: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = answer(tmp_path, text, capsys).splitlines()[1:]
    assert any(line.startswith("/f.yaml:") and place in line and words in line for line in lines), lines


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("1" * 5000, "at most 253 characters"),
        ("a" * 64 + ".b", "1 to 63 of them between two dots"),
        ("a..b", "is not a host name"),
        ("a.-b", "is not a host name"),
        ("-oProxyCommand=x", "is not a host name"),
        ("a\\x1b[31m", "is not a host name"),
        ("c1:70000", "a port is 1 to 65535"),
        ("u" * 300 + "@c1", "the name of a user has at most 255 characters"),
    ],
)
def test_names_that_no_system_allows(
    name: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    error = answer(tmp_path, RGWTEST.replace("[c1]", f'["{name}"]'), capsys)
    assert words in error and "\x1b" not in error and len(error) < 400
    if ":" not in name and "@" not in name:
        assert "must be http://" in answer(tmp_path, RGWTEST.replace("'http://r1:80'", f'"http://{name}"'), capsys)


def test_users_that_no_system_allows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long = answer(tmp_path, RGWTEST.replace("user: root", f"user: {'r' * 5000}"), capsys)
    assert "cluster.user: has 5000 characters, and 255 are the limit" in long
    assert "not - at first" in answer(tmp_path, RGWTEST.replace("user: root", "user: -root"), capsys)


@pytest.mark.parametrize("home", [False, True])
def test_unknown_keys_are_said_with_a_checkout_and_without(
    home: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("CBT_HOME", raising=False)
    if home:
        tree = tmp_path / "cbt"
        (tree / "cluster").mkdir(parents=True)
        for name in ("cbt.py", "settings.py", "common.py", "benchmarkfactory.py"):
            (tree / name).write_text("")
        (tree / "cluster" / "ceph.py").write_text("class Ceph:\n    x = config.get('of_a_newer_cbt')\n")
        monkeypatch.setenv("CBT_HOME", str(tree))
    keys = "iterations: 1, osds_per_node: 1, foo: 1, of_a_newer_cbt: 1"
    text = "whatever: 1\n" + RGWTEST.replace("iterations: 1", keys)
    warnings = answer(tmp_path, text, capsys, 0).partition("\nWarnings\n")[2]
    unknown = [line.split(": ")[1] for line in warnings.splitlines() if "unknown key" in line]
    assert unknown == ["whatever", "cluster.foo", *([] if home else ["cluster.of_a_newer_cbt"])]


def test_the_own_number_of_objects_of_a_group(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    groups = "    engine: cbt-load\n    buckets: {a: {objects: 500}, b: {number: 1}}\n    cycle:"
    file = WARP.replace("    cycle:", groups)
    out = answer(tmp_path, file + "        - fill: {objects: 9}\n", capsys, 0)
    assert "1 fill  9 objects per bucket, a 500  " in out and "unknown: fill: until 9 objects per bucket, a 500" in out
    same = file.replace("b: {number: 1}", "b: {objects: 500}")
    assert "1 fill  500 objects per bucket  " in answer(tmp_path, same + "        - fill: {objects: 9}\n", capsys, 0)


def test_urls_on_nodes_of_a_cluster_without_rgws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = WARP.replace("http://r1:80", "http://n2.example.com:80") + "        - fill: {objects: 9}\n"
    hint = "name these nodes as gateways: cluster: {rgws: [n2]}"
    assert hint in answer(tmp_path, file, capsys, 0)
    assert hint not in answer(tmp_path, file.replace("iterations", "rgws: [n2], iterations"), capsys, 0)
    assert hint not in answer(tmp_path, file.replace("n2.example", "n9.example"), capsys, 0)


@pytest.mark.parametrize("option", ["-V", "--version"])
def test_the_version(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    from cbt_plugins import __version__
    from cbt_plugins.cbt.run_loop import main as run

    for program in (main, run):
        with pytest.raises(SystemExit) as end:
            program([option])
        assert end.value.code == 0 and __version__ in capsys.readouterr().out
