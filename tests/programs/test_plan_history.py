"""The plans of `campaign` and of `pr` with --history: runs that are too few, or that are not used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import List

import fake_cycle
import pytest
import yaml
from config_files import CLUSTER, CYCLE, WARP

from cbt_plugins.tools.__main__ import main


@pytest.fixture
def nights(tmp_path_factory: pytest.TempPathFactory) -> List[str]:
    """Four runs; the last one is four times as fast, and lost objects."""
    folder = tmp_path_factory.mktemp("nights")
    made = fake_cycle.template(folder / "made")
    for number, (level, code) in enumerate(((1.0, ""), (1.01, ""), (0.99, ""), (4.0, "lost-objects"))):
        fake_cycle.archive(made, folder / f"night{number}", level, code)
    return [str(folder / f"night{number}") for number in range(4)]


def plans(tmp_path: Path) -> List[List[str]]:
    """Return the words of both plans."""
    words = []
    sections = {"campaign": {"arms": {"a": {}, "b": {}}}, "pr": {"deploy": "true", "program": fake_cycle.PROGRAM}}
    for name, section in sections.items():
        file = tmp_path / f"{name}.yaml"
        file.write_text(CLUSTER + WARP + CYCLE + "    workers: 8\n" + yaml.safe_dump({name: section}))
    words.append(["campaign", "plan", str(tmp_path / "campaign.yaml"), "--format", "json"])
    words.append(["pr", "a", "b", "--config", str(tmp_path / "pr.yaml"), "--plan", "--format", "json"])
    return words


def test_a_plan_names_runs_of_the_history_that_are_too_few_or_not_used(
    tmp_path: Path, nights: List[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    few = "--history has 2 usable runs of one configuration; 3 are needed"
    unused = f"1 run of --history not used, because incomplete, unusable or unreadable: {nights[3]}"
    for words in plans(tmp_path):
        for history, status, said in ((nights[:2], 0, [few]), (nights[:3], 0, []), (nights, 4, [unused])):
            assert main([*words, "--history", *history]) == status
            told = json.dumps(json.loads(capsys.readouterr().out))
            assert [text in told for text in (few, unused)] == [text in "".join(said) for text in (few, unused)]


def test_the_numbers_of_a_run_that_is_not_used_are_no_scatter(
    tmp_path: Path, nights: List[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    scatters = []
    for history in (nights[:3], nights):
        main([*plans(tmp_path)[1], "--history", *history])
        scatters.append([line for line in json.loads(capsys.readouterr().out)["plan"] if "block scatter of" in line])
    assert scatters[0] == scatters[1] != []


def test_a_pull_request_is_not_measured_with_a_history_that_is_not_used(
    tmp_path: Path, nights: List[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [word for word in plans(tmp_path)[1] if word != "--plan"]
    assert main([*words, "--history", *nights]) == 4
    assert "unreadable: " in (error := capsys.readouterr().err) and error.endswith("; nothing was run\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["campaign.yaml", "pr.yaml"]
