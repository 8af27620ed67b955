"""`acceptable:` of a section: its keys, CBT's statements, and what is said of faulty ones."""

from __future__ import annotations

import re
from pathlib import Path
from typing import List

import pytest
from config_files import CLUSTER, RGWTEST, errors_in, marked

from cbt_plugins.config.acceptable import Target, errors, parse, target_of
from cbt_plugins.metrics import ACCEPTABLE


@pytest.mark.parametrize(
    ("statement", "accepted"),
    [
        # (result, baseline) of which is accepted: 90, 95, 100, 105, 110 against 100
        ("(less)", [True, True, False, False, False]),
        ("(greater)", [False, False, False, True, True]),
        ("(near 0.05)", [False, True, True, True, False]),
        ("(near 0)", [False, False, True, False, False]),
        ("(or (greater) (near 0.05))", [False, True, True, True, True]),
        ("  (or(less)(or (near .05)(greater) ) )", [True] * 5),
        ("(or (near 0.05) (near 0.1))", [True] * 5),
    ],
)
def test_statements(statement: str, accepted: List[bool]) -> None:
    assert [parse(statement)(result, 100.0) for result in (90.0, 95.0, 100.0, 105.0, 110.0)] == accepted


def test_near_a_baseline_of_nothing_is_nothing() -> None:
    assert parse("(near 0.5)")(0.0, 0.0)
    assert not parse("(near 0.5)")(0.1, 0.0)


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("", "incomplete statement"),
        ("greater", "expected a statement in parentheses, not 'greater'"),
        ("(greater", "incomplete statement"),
        ("(or (greater)", "incomplete statement"),
        ("(greater))", "unexpected ')' after the end"),
        ("(greater) (less)", "unexpected '(' after the end"),
        ("(near)", "near needs a number"),
        ("(near (less))", "near needs a number"),
        ("(near x)", "not 'x'"),
        ("(near 5)", "share from 0 to 1, not 5"),
        ("(near -0.1)", "share from 0 to 1"),
        ("(near nan)", "share from 0 to 1"),
        ("(near 0.1 0.2)", "near takes one number, found '0.2' too"),
        ("(or (greater))", "in parentheses, not ')'"),
        ("(or (less) (near 0.1) (greater))", "or takes two statements, found '(' too"),
        ("(greater 1)", "greater takes nothing, found '1' too"),
        ("(and (less) (greater))", "unknown function 'and'"),
        ("()", "unknown function ')'"),
        ("(", "unknown function ''"),
    ],
)
def test_a_bad_statement_is_refused(statement: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        parse(statement)


@pytest.mark.parametrize(
    ("key", "target"),
    [
        ("bandwidth", Target(None, "total", "bandwidth")),
        ("GET/p99_ms", Target(None, "GET", "p99_ms")),
        ("measure-aged/p99_ms", Target("measure-aged", "total", "p99_ms")),
        ("measure-aged/total/obj_per_s", Target("measure-aged", "total", "obj_per_s")),
        ("measure-aged/DELETE/obj_per_s", Target("measure-aged", "DELETE", "obj_per_s")),
        ("fill/cores_per_gb_s", Target("fill", "total", "cores_per_gb_s")),
    ],
)
def test_keys(key: str, target: Target) -> None:
    assert target_of(key) == target


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("bandwith", "did you mean 'bandwidth'?"),
        ("q", "known here: bandwidth, "),
        ("fill/", "unknown metric ''"),
        ("/p99_ms", "must be metric, "),
        ("fill/GIT/p99_ms", "unknown operation 'GIT'; known here: GET, "),
        ("a/fill/GET/p99_ms", "must be metric, "),
        ("GET/ops_per_core", "for all operations together only"),
        ("cpu_cycles_per_op", "ops_per_core"),
    ],
)
def test_a_bad_key_is_refused(key: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        target_of(key)


def test_errors_of_a_file_are_found_all_at_once_with_their_places(tmp_path: Path) -> None:
    text, places = marked(
        CLUSTER + RGWTEST + "    acceptable:\n"
        "      bandwidth: (or (greater) (near 0.05))\n"
        "      §measure-agd/GET/p99_ms: (less)\n"
        "      §GET/p98_ms: (less)\n"
        "      p99_ms: §(lesser)\n"
        "      max_ms: §3\n"
    )
    found = errors_in(tmp_path, text)
    assert [fault.split(" ", 1)[0] + " " for fault in found] == places
    assert "no phase 'measure-agd'; did you mean 'measure-aged'?" in found[0]
    assert "did you mean 'p99_ms'?" in found[1]
    assert "unknown function 'lesser'; CBT knows (less), (greater)" in found[2]
    assert "must be a statement as text" in found[3]


def test_what_is_no_mapping_is_refused() -> None:
    for value in ([], "(greater)", None, 1):
        assert [p.path for p in errors(value, ())] == [("acceptable",)]
    assert list(errors({}, ())) == []


def test_the_example_of_the_documentation_is_right(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "CBT.md").read_text(encoding="utf-8")
    (example,) = (text for text in re.findall(r"```yaml\n(.*?)```", page, re.S) if "acceptable:" in text)
    assert errors_in(tmp_path, CLUSTER + example) == []
    assert errors_in(tmp_path, CLUSTER + example.replace("fill/", "fil/")) != []
    named = re.findall(r"^\| (`[a-z0-9_`, ]+`) \|", page, re.M)
    assert set(ACCEPTABLE) == {name for line in named for name in line.replace("`", "").split(", ")} & set(ACCEPTABLE)
