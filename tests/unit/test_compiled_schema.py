"""The compiled schema of a summary accepts what jsonschema accepts, and nothing else."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any, Iterator, List, Tuple

import archive_builder
import pytest

from cbt_plugins.results.compiled_schema import compile_schema
from cbt_plugins.results.summary_file import dumps, json_schema, summarize, validator

pytest.importorskip("jsonschema")

VALUES: List[Any] = [None, True, 0, -1, 1.5, float("nan"), float("inf"), "x", "", [], {}, [None], ["x"], [-1], {"x": 1}]


def places(data: Any) -> Iterator[Tuple[Any, Any]]:
    """Yield the containers of some data, each with a key of it."""
    for key, value in list(data.items() if isinstance(data, dict) else enumerate(data)):
        yield data, key
        if isinstance(value, (dict, list)) and value:
            yield from places(value)


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp("run")
    run = archive_builder.cbt_run(folder, {"benchmark": "warp", "iteration": 0})
    return json.loads(dumps(summarize(run)))


def test_a_summary_is_accepted_and_a_tuple_is_a_list(summary: Any) -> None:
    matches = compile_schema(json_schema())
    assert matches(summary)
    assert matches({**summary, "warnings": tuple(summary["warnings"])})


def test_it_accepts_nothing_that_the_validator_refuses(summary: Any) -> None:
    """One value of a summary is another, one is missing, or one is new; a float that is whole may be left to it."""
    matches, chance, refused = compile_schema(json_schema()), random.Random(1), 0
    spots = list(places(summary))
    for _ in range(600):
        container, key = chance.choice(spots)
        former = copy.copy(container)
        change = chance.randrange(4)
        if change == 3:
            del container[key]
        elif change == 2 and isinstance(container, dict):
            container["odd"] = chance.choice(VALUES)
        else:
            container[key] = chance.choice(VALUES)
        is_valid = validator().is_valid(summary)
        assert matches(summary) == is_valid, (key, former, container)
        refused += not is_valid
        container.clear()
        container.update(former) if isinstance(container, dict) else container.extend(former)
    assert 100 < refused < 590


def test_an_unknown_keyword_is_named() -> None:
    with pytest.raises(ValueError, match="pattern"):
        compile_schema({"properties": {"a": {"pattern": "x"}}})
