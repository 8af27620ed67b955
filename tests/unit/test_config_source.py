"""YAML as data with places: the data is what CBT loads, and a place is where an editor's cursor belongs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Iterator, Tuple

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from cbt_plugins.config.errors import ConfigError
from cbt_plugins.config.source import YamlSource, mask_secrets, read

_scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.dates()
_data = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=20,
)


def source(text: str) -> YamlSource:
    return YamlSource(text.encode(), "f.yaml")


@settings(deadline=None)
@given(_data, st.sampled_from([None, True, False]), st.sampled_from([None, "'", '"']))
def test_data_is_what_safe_load_makes(data: Any, flow: Any, quotes: Any) -> None:
    text = yaml.safe_dump(data, default_flow_style=flow, default_style=quotes, allow_unicode=True)
    assert source(text).data == yaml.safe_load(text)


@settings(deadline=None)
@given(_data, st.sampled_from([None, True, False]))
def test_every_place_is_where_the_parser_saw_it(data: Any, flow: Any) -> None:
    text = yaml.safe_dump(data, default_flow_style=flow, allow_unicode=True, sort_keys=False)
    read_back = source(text)
    seen = [
        (event.start_mark.line + 1, event.start_mark.column + 1)
        for event in yaml.parse(text)
        if isinstance(event, (yaml.ScalarEvent, yaml.CollectionStartEvent))
    ]
    assert list(places(read_back, read_back.data, ())) == seen


def places(found: YamlSource, data: Any, path: Tuple[Any, ...]) -> Iterator[Tuple[int, int]]:
    yield found.place(path)
    for part, inner in (
        data.items() if isinstance(data, dict) else enumerate(data if isinstance(data, list) else ())
    ):
        if isinstance(data, dict):
            yield found.place((*path, part), of_key=True)
        yield from places(found, inner, (*path, part))


def test_places_of_keys_values_and_what_is_absent() -> None:
    found = source("a:\n  b: [1, {c: 2}]\n  d:\n  e: x\n")
    assert found.place(("a", "b", 1, "c")) == (2, 14)
    assert found.place(("a", "b", 1, "c"), of_key=True) == (2, 11)
    assert found.place(("a", "d")) == (3, 3)  # no value there: its key
    assert found.place(("a", "zz")) == (2, 3)  # no key there: the mapping
    assert found.place(("a", "b", 7)) == (2, 6)
    assert found.place(()) == (1, 1)


def test_merged_keys_have_the_place_of_their_origin() -> None:
    found = source("base: &b {x: 1, y: 2}\nuse:\n  <<: *b\n  y: 3\n")
    assert found.data["use"] == {"x": 1, "y": 3}
    assert found.place(("use", "x")) == (1, 14)
    assert found.place(("use", "y")) == (4, 6)
    assert found.duplicates == ()


def test_duplicate_keys_are_found_at_the_second_one() -> None:
    found = source("a:\n  workers: 1\n  'workers': 2\nb: {x: 1, x: 2}\n")
    assert [str(fault) for fault in sorted(found.duplicates, key=lambda fault: fault.line or 0)] == [
        "f.yaml:3:3: a.workers: duplicate key (first in line 2); YAML would silently take the last",
        "f.yaml:4:11: b.x: duplicate key (first in line 4); YAML would silently take the last",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1\nb: 2\n", "f.yaml:2:2: not YAML: while parsing a flow sequence"),
        ("a: 1\n\tb: 2\n", "f.yaml:2:1: not YAML: "),
        (
            "a: 2023-13-45\n",
            "f.yaml:1:4: not YAML: this cannot be read as a value of the YAML type 'timestamp'",
        ),
        ("a: !!int x\n", "f.yaml:1:4: not YAML: this cannot be read"),
        ("a: !!python/object:os.system {}\n", "f.yaml:1:4: not YAML: could not determine a constructor"),
        ("a: 1\n---\nb: 2\n", "f.yaml:2:1: not YAML: expected a single document"),
        ("ok: 1\nbad: \x07\n", "f.yaml:2:1: not YAML: special characters are not allowed"),
        ("[" * 1000, "f.yaml: not YAML that can be read: nested too deeply"),
    ],
)
def test_what_is_no_yaml_is_one_error_with_its_place(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        source(text)
    assert str(refused.value).startswith(message)
    assert len(refused.value.errors) == 1


def test_aliases_may_be_recursive_and_many() -> None:
    bomb = "a: &a [x, x]\n" + "".join(
        f"{b}: &{b} [*{a}, *{a}]\n" for a, b in zip("abcdefghijklmnopqrst", "bcdefghijklmnopqrstu")
    )
    assert source(bomb).place(("u", 1)) == (20, 4)  # where the text stands, not where it is used
    loop = source("a: &a\n  b: *a\n")
    assert loop.data["a"]["b"] is loop.data["a"]


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read: No such file"):
        read(tmp_path / "none.yaml")


def test_secrets_are_masked_and_references_stay() -> None:
    text = "# keys\na: {access_key: AKIA, secret_key: '${KEY}'}\n"
    text += "b:\n  secret_key: |\n    two\n    lines\n  x: 1\n"
    masked = mask_secrets(text)
    assert "AKIA" not in masked
    assert "two" not in masked
    assert yaml.safe_load(masked) == {
        "a": {"access_key": "***", "secret_key": "${KEY}"},
        "b": {"secret_key": "***", "x": 1},
    }
    assert masked.startswith("# keys\n")
