"""What the README shows must work as it stands."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest
from doc_examples import files_in

from cbt_plugins.config.file_check import load_file
from cbt_plugins.config.plan_preview import warnings
from cbt_plugins.inventory import nodes_of
from cbt_plugins.tools.__main__ import VERBS

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def test_its_configuration_is_a_good_one(tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml\n(.*?) *```", README, re.DOTALL)
    file = tmp_path / "my.yaml"
    file.write_text(textwrap.dedent(block))
    assert file.read_text() == (ROOT / "benchmark_configs" / "first-run.yaml").read_text(), "the file that it names"
    load_file(file)


def test_the_first_example_of_the_configuration_page_is_a_good_one(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "CONFIG.md").read_text(encoding="utf-8")
    file = tmp_path / "example.yaml"
    file.write_text(re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)[0])
    assert len(load_file(file).runs) == 3  # as its comment says


def test_the_file_of_each_kind_of_cluster_is_a_good_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "credentials").write_text("[prod]\naws_access_key_id = A\naws_secret_access_key = S\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    files = files_in("SITES.md")
    assert set(files) == {"cephadm", "Rook", "S3 only"}
    for title, text in files.items():
        file = tmp_path / "my.yaml"
        file.write_text(text)
        config = load_file(file)
        assert config.runs, title
        clients = nodes_of(config.cluster, "clients")
        said = [text for run in config.runs for text in warnings(run.plan, clients)]
        assert not [text for text in said if "no driver runs on" in text], title


def test_its_links_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert target.startswith("https://") or (page.parent / target).exists(), (page.name, target)


def test_its_commands_exist() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for verb in re.findall(r"cbt-tools ([a-z]+)", page.read_text()):
            assert verb in VERBS, (page.name, verb)
