"""YAML as data with places: the data is what CBT loads, and a place is where an editor's cursor belongs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Iterator, Tuple

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from cbt_plugins.config.errors import ConfigError
from cbt_plugins.config.yaml_source import YamlSource, mask_secrets, read

_scalars = st.none() | st.booleans() | st.integers(1 - (1 << 64), (1 << 64) - 1) | st.text(max_size=8) | st.dates()
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
        "f.yaml:3:3: a.workers: duplicate key (first in line 2); YAML would silently take the last: keep one",
        "f.yaml:4:11: b.x: duplicate key (first in line 4); YAML would silently take the last: keep one",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1\nb: 2\n", "f.yaml:2:2: not YAML: a comma or ] is missing before this"),
        (
            "a: 2023-13-45\n",
            "f.yaml:1:4: not YAML: no such date or time; quote it when it is text",
        ),
        ("a: !!int x\n", "f.yaml:1:4: not YAML: this cannot be read"),
        ("a: !!python/object:os.system {}\n", "f.yaml:1:4: not YAML: unknown tag"),
        ("a: 1\n---\nb: 2\n", "f.yaml:2:1: not YAML: a second document begins here"),
        ("ok: 1\nbad: \x07\n", "f.yaml:2:6: not YAML: U+0007 is not allowed"),
        ("keys: [*.GET.p99_ms]\n", "f.yaml:1:9: not YAML: an alias (*name) without a name: quote a value"),
        ("a: 1\n\tb: 2\n", "f.yaml:2:1: not YAML: a tab: YAML is indented by spaces only"),
        ("a: b: c\n", "f.yaml:1:5: not YAML: a colon at a wrong place"),
        ("a: 'x\nb: 1\n", "f.yaml:1:4: not YAML: this quote is not closed"),
        ("a: {b: 1\n", "f.yaml:2:1: not YAML: a comma or } is missing"),
        ("a: *b\n", "f.yaml:1:4: not YAML: no anchor of this name"),
        ("a: =\n", "f.yaml:1:4: not YAML: unknown tag, or a lone '='"),
        ("{[1]: 2}\n", "f.yaml:1:2: not YAML: a key must be text"),
        ("[" * 1000, "f.yaml:1:51: nested too deeply"),
        ("a: &a\n  b: *a\n", "f.yaml:2:6: *a stands inside of &a"),
        ("a: 12:30:45\n", "f.yaml:1:4: to YAML this is a number in base 60"),
        (f"a: {'1:' * 500}1.5\n", "f.yaml:1:4: to YAML this is a number in base 60"),
        (f"a: {'9' * 5000}\n", "f.yaml:1:4: "),
        ("a: 2001-12-14t21:59:43.10-99:99\n", "f.yaml:1:4: not YAML: no such date or time"),
        ("a: 1\nb: é\udcff\n", "f.yaml:2:5: not YAML: not UTF-8 (byte 0xff)"),
        ("x" * 140_000, "f.yaml: larger than 128 KiB"),
    ],
)
def test_what_is_no_yaml_is_one_error_with_its_place(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        YamlSource(text.encode(errors="surrogateescape"), "f.yaml")
    assert str(refused.value).startswith(message)
    assert len(refused.value.errors) == 1


def nested(first: str, link: str, times: int) -> str:
    """Nine levels of aliases, each of which repeats the one before so many times."""
    levels = (link % (i, i, ", ".join([f"*a{i - 1}"] * times)) for i in range(1, 10))
    return f"a0: &a0 {first}\n" + "".join(levels)


@pytest.mark.parametrize(
    ("first", "link"), [("[x]", "a%d: &a%d [%s]\n"), ("{x: 1}", "a%d: &a%d {<<: [%s]}\n")]
)
def test_aliases_that_multiply_are_refused_where_they_become_too_many(first: str, link: str) -> None:
    assert source(nested(first, link, 2)).place(("a9",))[0] == 10  # a few thousand values are fine
    with pytest.raises(ConfigError, match=r"f\.yaml:6:(5|14): more than 100000 values"):
        source(nested(first, link, 10))


def test_utf_16_is_refused_as_cbt_refuses_it() -> None:
    with pytest.raises(ConfigError, match=r"f\.yaml:1:1: not YAML: not UTF-8 \(UTF-16\)"):
        YamlSource("a: 1\n".encode("utf-16"), "f.yaml")


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read: No such file"):
        read(tmp_path / "none.yaml")


def test_secrets_are_masked_and_references_stay() -> None:
    text = "# keys\na: {access_key: AKIA, secret_key: '${KEY}'}\n"
    text += "b:\n  secret_key: |\n    two\n    lines\n  x: 1\n"
    text += "c: {access_key: secret:rook-ceph/user.of-store/AccessKey, secret_key: secret:user/SecretKey}\n"
    text += "d: {access_key: secret:hunter2, secret_key: secret:Two Words/x, password: secret:A/b/c/d}\n"
    masked = mask_secrets(text)
    assert "AKIA" not in masked
    assert "two" not in masked
    assert yaml.safe_load(masked) == {
        "a": {"access_key": "***", "secret_key": "${KEY}"},
        "b": {"secret_key": "***", "x": 1},
        "c": {"access_key": "secret:rook-ceph/user.of-store/AccessKey", "secret_key": "secret:user/SecretKey"},
        "d": {"access_key": "***", "secret_key": "***", "password": "***"},
    }
    assert masked.startswith("# keys\n")
