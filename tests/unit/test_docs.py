"""The pages of docs/: their form, their links, and what they promise that the code can be asked for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Iterator, Set, Tuple

import pytest
import yaml

from cbt_plugins.config import bounds, file_check
from cbt_plugins.results.recovery import impact, milestones
from cbt_plugins.results.recovery.episodes import EARLY

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
COLUMNS = 120


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def anchors_of(page: Path) -> Set[str]:
    """Anchors of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def table_heads(page: Path) -> Iterator[str]:
    lines = page.read_text(encoding="utf-8").splitlines()
    yield from (head for head, rule in zip(lines, lines[1:]) if re.fullmatch(r"\|[ :|-]+\|", rule) and "|" in head)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_line_outside_tables_is_too_long(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if len(line) > COLUMNS and not line.lstrip().startswith("|")] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_column_of_a_table_has_a_heading(page: Path) -> None:
    assert [head for head in table_heads(page) if re.search(r"\|\s*\|", head)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_anchor_is_a_heading(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)]+)\)", page.read_text(encoding="utf-8")):
        if not target.startswith("https://"):
            assert anchor in anchors_of((page.parent / target) if target else page), (page.name, target, anchor)


def test_anchors_in_messages_and_code_are_headings() -> None:
    files = [path for folder in ("cbt_plugins", "monitors", "tools") for path in (ROOT / folder).rglob("*.*")]
    texts = [path.read_text(encoding="utf-8") for path in files if path.suffix in (".py", ".j2", ".json", ".go")]
    links = {link for text in texts for link in re.findall(r"docs/([A-Z-]+\.md)(?:#([\w-]+))?", text)}
    assert links
    for page, anchor in links:
        path = ROOT / "docs" / page
        assert path.exists() and (not anchor or anchor in anchors_of(path)), (page, anchor)


def section(page: str, title: str) -> str:
    return text_of(page).split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_readme_and_installation_have_one_list_of_releases() -> None:
    lists = [
        re.findall(r"^\|.*$", section(page, "What it runs on"), re.MULTILINE)
        for page in ("README.md", "docs/INSTALL.md")
    ]
    assert [line.replace("(docs/", "(") for line in lists[0]] == lists[1]
    assert len(lists[1]) > 4
    tested = set(re.findall(r"\d+\.\d+\.\d+", next(line for line in lists[1] if line.startswith("| Ceph"))))
    (head,) = re.findall(r"^\| engine, cycle (.*)$", text_of("docs/TESTED.md"), re.MULTILINE)
    assert tested == set(re.findall(r"\d+\.\d+\.\d+", head))


def warnings_of_failures() -> Iterator[Tuple[str, str]]:
    """Rows of the table of warnings in docs/RECOVERY.md: (code, when)."""
    table = section("docs/RECOVERY.md", "Warnings of a failure")
    rows = re.findall(r"^\| ([a-z*, -]+) \| (.*) \|$", table, re.MULTILINE)
    return ((code, when) for codes, when in rows for code in re.findall(r"[a-z]+(?:-[a-z]+)+", codes))


def test_each_warning_of_a_failure_is_listed_with_its_numbers() -> None:
    room = ROOT / "cbt_plugins" / "results" / "recovery"
    used = {
        code
        for name in ("impact.py", "failure_warnings.py")
        for code in re.findall(r'"code": "([a-z-]+)"', (room / name).read_text(encoding="utf-8"))
    }
    when = dict(warnings_of_failures())
    assert len(used) >= 12 and used - set(when) == set()
    assert f"shorter than {impact.SHORT:g} s" in when["short-baseline"]
    assert f"for {impact.HALVED} s" in when["unsteady-baseline"] and "less than half" in when["unsteady-baseline"]
    assert impact.HALF == 0.5
    assert f"{EARLY:g} s" in when["switch-fired-early"] and f"{EARLY:g} s" in when["fault-ended-early"]
    assert f"lasts {milestones.STABLE_IN_SAMPLES:g} s or more" in text_of("docs/RECOVERY.md")


def test_public_ci_runs_what_ours_runs() -> None:
    (job,) = yaml.safe_load(text_of(".github/workflows/test.yml"))["jobs"].values()
    assert job["steps"][-1]["run"] == ".ci/run"
    assert "debian:12" in job["container"]["image"] and "--privileged" in job["container"]["options"]
    assert "./run test" in text_of(".ci/run")


def test_the_licence_is_whole() -> None:
    licence = text_of("LICENSE")
    assert "Version 2.0, January 2004" in licence and "END OF TERMS AND CONDITIONS" in licence


def test_the_changelog_is_read_in_one_sitting() -> None:
    assert len(text_of("CHANGELOG.md").split()) <= 900


def test_the_limits_are_those_of_the_code() -> None:
    limits = " ".join(text_of("docs/CONFIG.md").split())
    assert f"{file_check.MOST_RUNS:,} runs for a section and {bounds.RUNS:,} runs for a file" in limits
    assert f"{bounds.SECONDS / 86400:g} days" in limits and f"{bounds.IN_FLIGHT:,} requests in flight" in limits
