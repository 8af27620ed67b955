"""Hostile and hasty YAML: one sentence with its place, the same from `plan` and both hosts, and nothing is touched."""

from __future__ import annotations

from pathlib import Path
from typing import List

import pytest
from config_files import CLUSTER, CYCLE, RGWTEST, WARP, marked

from cbt_plugins.cbt import layout, run_loop
from cbt_plugins.tools.__main__ import main

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
    assert layout.errors_of(file) == lines
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


def write(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "f.yaml"
    file.write_text(text, encoding="utf-8")
    return file
