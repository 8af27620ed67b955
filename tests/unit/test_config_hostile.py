"""Hostile and hasty YAML: one sentence with its place, the same from `plan` and both hosts, and nothing is touched."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, List, Sequence, Tuple

import pytest
from config_files import CLUSTER, CYCLE, RGWTEST, S3, WARP, errors_in, marked, stand_in_checkout
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutations import VALUES, mutated

from cbt_plugins.cbt import archive_layout, run_loop
from cbt_plugins.config.errors import ConfigError, ErrorAt
from cbt_plugins.config.file_check import load
from cbt_plugins.config.yaml_source import YamlSource
from cbt_plugins.formatting.screen import printable
from cbt_plugins.tools.__main__ import main

CONFIGS = Path(__file__).parents[2] / "benchmark_configs"
#: all but the fault file, which is none of CBT's
SHIPPED = [file for file in sorted(CONFIGS.glob("*.yaml")) if not file.name.startswith("faults-")]
PROFILES = "monitoring_profiles:"
NETWORK = "label: a, kind: network, nodes: [node1], options: {interfaces"
FILE = CLUSTER + WARP + CYCLE


def refusals(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> List[str]:
    """What all three say of a file that each of them refuses: by plan, by our run loop, by the hook in cbt.py."""
    file, archive = tmp_path / "f.yaml", tmp_path / "archive"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    assert main(["plan", str(file)]) == 2
    by_plan = capsys.readouterr().err
    assert run_loop.main(["-a", str(archive), str(file)]) == 2
    assert capsys.readouterr().err == by_plan
    lines = by_plan.splitlines()[1:]
    assert archive_layout.errors_of(file) == lines
    assert not archive.exists()
    return [line.replace(f"{tmp_path}/", "") for line in lines]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CLUSTER, "the section is missing or empty"),
        (CLUSTER + "§benchmark" + RGWTEST[len("benchmarks") :], "unknown key; did you mean 'benchmarks'?"),
        (FILE + "§montioring_profiles: {recovery: {}}\n", "unknown key; did you mean 'monitoring_profiles'?"),
        (CLUSTER + "  §tmp_dr: /x\n" + RGWTEST, "cluster.tmp_dr: unknown key; did you mean 'tmp_dir'?"),
        (CLUSTER + "  §rgsw: [a]\n" + RGWTEST, "cluster.rgsw: unknown key; did you mean 'rgws'?"),
        (CLUSTER + "  §rgw: [a]\n" + RGWTEST, "cluster.rgw: unknown key; did you mean 'rgws'?"),
        (CLUSTER.replace("iterations", "§iteration") + RGWTEST, "unknown key; did you mean 'iterations'?"),
        (CLUSTER + "common: {§pdsh_ssh_arg: -x}\n" + RGWTEST, "unknown key; did you mean 'pdsh_"),
        (FILE + "monitoring_profiles: {§recvoery: {}}\n", "did you mean 'recovery'?"),
        (FILE.replace("rgw1:7480'], user: cbt", "rgw1:7480'], user: cbt, §1: 2"), "the key 1 is not text"),
        (FILE + "---\na: 1\n", "a second document begins here"),
        (FILE + '    §"a\\e[31m\\u202e": 1\n', "warp.a\\x1b[31m\\u202e: unknown key"),
        (FILE + "    engine: §!!int hybrid\n", "this cannot be read as a value of the YAML type 'int'"),
        (FILE + "    settings: {config: {osd: {a: §12:30:45.5}}}\n", "a number in base 60"),
    ],
)
def test_a_refusal_is_one_sentence_everywhere(
    tmp_path: Path, text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text, places = marked(text)
    if "warp" not in text and "rgwtest" not in text:  # CBT's own affair in cbt.py
        assert main(["plan", str(write(tmp_path, text))]) == 2
        assert message in capsys.readouterr().err
        return
    (found,) = refusals(tmp_path, text, capsys)
    assert found.startswith(places[0] if places else "f.yaml:")
    assert message in found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("user: root", "user: §-oProxyCommand=x"), "cluster.user: must be the name of a user"),
        (("user: root", "user: §'a b'"), "cluster.user: must be the name of a user"),
        (("[node1]", "[§'-rf']"), "cluster.osds[0]: '-rf' is not a host name"),
        (("iterations", "mgrs: [§'a;b']\n  iterations"), "cluster.mgrs[0]: 'a;b' is not a host name"),
        (("iterations", "mdss: {§'$(x)': {}}\n  iterations"), "'$(x)' is not a host name"),
        (("iterations", "tmp_dir: §'/tmp/a;b'\n  iterations"), "must be an absolute path"),
        (("iterations", "conf_file: §-x\n  iterations"), "cluster.conf_file: must be a path"),
        (("iterations", "ceph_cmd: §'ceph; reboot'\n  iterations"), "cluster.ceph_cmd: must be a program"),
        (("iterations", "radosgw-admin_cmd: §[x]\n  iterations"), "radosgw-admin_cmd: must be text, not a list"),
        (("user: cbt", "user: §--rest"), "s3.user: must be the name of a user"),
        (("user: cbt", "user: cbt, region: §'-x'"), "s3.region: must be letters"),
        (("cycle", "warp_path: §--x\n    cycle"), "warp_path: must be an absolute path"),
        (("cycle", "settings: {config: {osd: {a: §-rf}}}\n    cycle"), "osd.a: must not begin with -"),
        (("cycle", 'settings: {config: {osd: {a: §"x\\ny"}}}\n    cycle'), "osd.a: must be one line"),
        (("{fill: {objects: 100}}", "{warp: {op: get, duration: 5s, args: {§'a b': 1}}}"), "not the name of an option"),
        (("{fill: {objects: 100}}", "{warp: {op: get, duration: 5s, args: {a: §-b}}}"), "must not begin with -"),
        (("100}", f"100, events: [{{at: 0s, fault: {{{NETWORK}: [§'-rf']}}}}}}]}}"), "interfaces[0]: must be an"),
        (("100}", "100, events: [{at: 0s, fault: {label: a, kind: stop, daemons: [§'; x osd.3']}}]}"), "as in osd.3"),
        (("benchmarks", "common: {pdsh_cmd: §'-x'}\nbenchmarks"), "common.pdsh_cmd: must be a program"),
        (("benchmarks", 'common: {pdsh_ssh_args: §"\'"}\nbenchmarks'), "must be options of ssh: No closing quotation"),
        (("benchmarks", "common: {pdsh_ssh_args: §-oUser=%u}\nbenchmarks"), "'-oUser=%u' would be the name of"),
        (("benchmarks", "common: §x\nbenchmarks"), "common: must be a mapping"),
        (("benchmarks", f"{PROFILES} {{collectl: {{args: §{{x: 1}}}}}}\nbenchmarks"), "must be text, not a mapping"),
        (("benchmarks", f"{PROFILES} {{collectl: {{args: §'x; y'}}}}\nbenchmarks"), "quote each of ; | & < > ( )"),
        (("benchmarks", f"{PROFILES} {{collectl: {{args: §'-f {{x}}'}}}}\nbenchmarks"), "{collectl_dir} only"),
        (("benchmarks", f"{PROFILES} {{faults: {{file: §--tied}}}}\nbenchmarks"), "must not begin with -"),
        (("benchmarks", f"{PROFILES} {{perf: {{args: §7}}}}\nbenchmarks"), "args: must be text, not a number"),
        (("benchmarks", f"{PROFILES} {{collectl: {{nodes: [§osd]}}}}\nbenchmarks"), "'osd'; did you mean 'osds'?"),
        (("benchmarks", f"{PROFILES} {{recovery: {{nodes: §clint}}}}\nbenchmarks"), "no key of `cluster:`: 'clint'"),
    ],
)
def test_what_reaches_a_command_line_is_checked_before(
    tmp_path: Path, change: Tuple[str, str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text, places = marked(FILE.replace(*change, 1))
    (found,) = refusals(tmp_path, text, capsys)
    assert found.startswith(places[0])
    assert message in found


def test_what_shipped_files_and_users_write_there_is_fine(tmp_path: Path) -> None:
    args = """'-s+mYZ -i 1:10 -F0 -f {collectl_dir} --rawdskfilt "+cciss/c\\d+d\\d+ |hd[ab] | sd[a-z]+ " --sep ";"'"""
    text = FILE.replace("user: root", "user: svc_perf-1").replace("user: cbt", "user: tenant$cbt, region: eu-west-1")
    text = text.replace("iterations", "ceph_cmd: sudo -n /usr/bin/ceph\n  conf_file: ./ceph.conf\n  iterations")
    text += "    settings: {config: {osd: {a: -1, b: -1.5e3, c: '3 4', d: x-y}}}\n"
    text += "common: {pdsh_ssh_args: '-oProxyCommand=\"ssh -W %h:%p bastion\"'}\n"
    text += f"{PROFILES}\n  collectl:\n    args: {args}\n"
    assert errors_in(tmp_path, text) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("cycle", "scale: §1.0e+300\n    cycle"), "warp.scale: must be at most 1000.0"),
        (("60s", "§400d"), "duration: more than 366d, the longest duration"),
        (("60s", "60s, rate: §2000M/s"), "rate: more than 1000000000 requests a second"),
        (("100}", "§99999999999}"), "objects: must be at most 9999999999"),
        (("cycle", "size: §6TiB\n    cycle"), "size: S3 takes objects of at most 5 TiB"),
        (("cycle", "read_objects: §1000000001\n    cycle"), "must be at most 1000000000"),
        (("100}", "100, events: [{at: 0s, fault: {label: a, kind: out, osds: [§1000001]}}]}"), "at most 1000000"),
        (("benchmarks", "§benchmarks"), "10020 runs, and 10000 are the limit of a file: shorten it, or split it"),
        (("60s", "365d"), "366d is the limit of a file: shorten it, or split it"),
        (("objects: 100}", "objects: 9999999999}"), "written in all, and 1024 PiB is the limit"),
        (("cycle", "drivers: 10000\n    workers: 10000\n    cycle"), "100000000 requests in flight in one run"),
        (
            ("cycle", "engine: cbt-load\n    across_buckets: true\n    drivers: 2000\n    buckets: 2000\n    cycle"),
            "4000000 pairs of a driver and a bucket in one run",
        ),
        (("[{fill", f"§[{', '.join(['{wait: {duration: 1s}}'] * 1000)}, {{fill"), "must have at most 1000 elements"),
        (("benchmarks", f"benchmarks:\n  rgwtest:\n    workers: {list(range(1, 1002))}\n{S3}#"), "too many runs"),
        (("clients", f"mdss: §{['n'] * 5001}\n  clients"), "a list of 5001 elements: 5000 are the limit"),
    ],
)
def test_every_number_and_their_total_have_a_bound(
    tmp_path: Path, change: Tuple[str, str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (FILE + "    size: [128MiB]\n" * ("9999999999" in change[1])).replace(*change)
    text = text.replace("iterations: 1", "iterations: 5010") if "10020" in message else text
    text = text.replace("s3:", "workers: [1, 2]\n    s3:", 1) if "limit of a file" in message else text
    text, places = marked(text)
    (found,) = refusals(tmp_path, text, capsys)
    assert found.startswith(places[0] if places else "f.yaml:")
    assert message in found


@pytest.mark.parametrize("part", range(10 if os.environ.get("CBT_PLUGINS_LONG") else 2))
def test_a_mutated_file_is_refused_everywhere_by_the_same_words_or_nowhere(
    tmp_path: Path, part: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fifty seeded mutations of the shipped files a part; after a change here run all parts (CBT_PLUGINS_LONG=1)."""
    monkeypatch.chdir(CONFIGS.parent)  # a file may name another one
    monkeypatch.setenv("CBT_HOME", str(stand_in_checkout(tmp_path / "cbt")))  # fio-scale-out.yaml needs one
    for what in ("RunLoop", "_hand_over"):
        monkeypatch.setattr(run_loop, what, accepted)
    file, accepts = tmp_path / "f.yaml", 0
    for seed in range(50 * part, 50 * part + 50):
        file.write_bytes(mutated(SHIPPED[seed % len(SHIPPED)].read_text(encoding="utf-8"), seed))
        status = main(["plan", str(file)])
        said = capsys.readouterr()
        assert "\x1b" not in said.out + said.err
        if status == 0 or "no benchmark of cbt-plugins" in said.err:
            with pytest.raises(WouldRun):
                run_loop.main(["-a", str(tmp_path / "archive"), str(file)])
            accepts += 1
            continue
        first, *lines = said.err.splitlines()
        assert status == 2 and first.startswith("Error: ") and lines, (seed, said.err)
        places = (f"{file}:", "benchmark_configs/faults-one-node.yaml:")
        assert all(line.startswith(places) and line[len(str(file)) + 1].isdigit() for line in lines), (seed, lines)
        assert run_loop.main(["-a", str(tmp_path / "archive"), str(file)]) == 2
        assert capsys.readouterr().err == said.err, seed
        if seed % 5 == 0:
            assert archive_layout.errors_of(file) == (lines if archive_layout.has_ours(file) else []), seed
    assert 0 < accepts < 50
    assert not (tmp_path / "archive").exists()


def test_without_a_checkout_a_file_with_sections_of_cbt_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("CBT_HOME", raising=False)
    file = str(CONFIGS / "fio-scale-out.yaml")
    assert run_loop.main(["-a", str(tmp_path / "archive"), file]) == 2
    assert "benchmarks: librbdfio: no plug-in" in capsys.readouterr().err
    assert not (tmp_path / "archive").exists()


class WouldRun(Exception):
    """Raised where a run would begin."""


def accepted(*_: Any) -> Any:
    raise WouldRun


@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(st.sampled_from([*VALUES]) | st.text(max_size=30) | st.binary(max_size=30), st.integers(0, 10_000))
def test_any_text_at_any_place_is_a_plan_or_errors_with_places(value: Any, place: int) -> None:
    text = FILE.encode()
    place %= len(text) + 1
    inserted = value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")
    errors: Sequence[ErrorAt] = ()
    try:
        load(YamlSource(text[:place] + inserted + text[place:], "f.yaml"))
    except ConfigError as error:
        errors = error.errors
    assert all(re.match(r"f\.yaml:\d+:\d+: ", str(one)) and printable(str(one)) == str(one) for one in errors)


def write(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "f.yaml"
    file.write_text(text, encoding="utf-8")
    return file
