"""The examples of docs/TOUR.md that need no cluster; tests/lab/test_tour_on_lab.py has the others."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from doc_examples import ROOT, make_files, play, sections

from cbt_plugins.tools.__main__ import VERBS, main


def test_a_run_and_two_releases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("jinja2")
    monkeypatch.chdir(tmp_path)
    make_files(tmp_path)

    def run(command: str) -> str:
        line, _, status = command.partition("; ")
        code = main(shlex.split(line)[1:])
        said = capsys.readouterr()
        return said.out + said.err + (f"{code}\n" if status else "")

    assert play("A run: size, import, kubernetes, plan, watch, report, sql, export, flame", tmp_path, run) == 11
    assert play("Two releases: compare, gate, history, campaign, bisect, pr", tmp_path, run) == 6


def test_no_verb_is_left_out() -> None:
    commands = [command for examples in sections("TOUR.md").values() for command, _ in examples]
    assert [verb for verb in VERBS if not any(f"cbt-tools {verb} " in f"{command} " for command in commands)] == []


def test_the_formats_of_each_verb_are_as_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    """Those of verbs with verbs of their own are said of these."""
    head = (ROOT / "docs" / "TOUR.md").read_text().split("\n## ")[0].replace("\n", " ")
    formats = {}
    for forms, verbs in re.findall(r"(\w+(?:\|\w+)+) in ((?:`[a-z ]+`(?:, | and )?)+)", head):
        formats.update(dict.fromkeys(re.findall(r"`([a-z ]+)`", verbs), forms))
    assert formats
    for verb in {*VERBS, *formats}:
        with pytest.raises(SystemExit):
            main([*verb.split(), *(["capacity"] if verb == "size" else []), "--help"])
        form = re.search(r"--format ([\w|]+)", " ".join(capsys.readouterr().out.split()).replace("| ", "|"))
        assert (form[1] if form else None) == formats.get(verb), verb
