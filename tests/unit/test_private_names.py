"""Tests use the public face of what they test: private names of others are counted, and each has its reason."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Iterator

import pytest

TESTS = Path(__file__).resolve().parents[1]
#: "file: expression" -> why no public name does
ACCEPTED = {
    "programs/test_cli.py: parser._actions": "argparse has no other list of a parser's verbs",
}
#: names of NamedTuple that are public
OF_TUPLES = {"_replace", "_asdict", "_fields", "_make"}
#: functions that take the name of an attribute as a text
BY_TEXT = {"setattr", "getattr", "delattr", "hasattr", "object"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_" and name not in OF_TUPLES


def is_own(node: ast.expr) -> bool:
    """Tell whether an expression is the object, or the class, to which the code belongs."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "super"
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def private_names(tree: ast.AST) -> Iterator[str]:
    """Yield each use of a private name that belongs to another object or module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr) and not is_own(node.value):
            yield ast.unparse(node)
        elif isinstance(node, ast.ImportFrom):
            for name in node.names:
                if any(map(is_private, [*(node.module or "").split("."), name.name])):
                    yield f"from {node.module} import {name.name}"
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in BY_TEXT:
            texts = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
            for text in texts:
                if isinstance(text, str) and is_private(text.rpartition(".")[2]) and not is_own(node.args[0]):
                    yield f"{ast.unparse(node.func)}({ast.unparse(node.args[0])}, {text})"


def test_private_names_of_others_have_a_reason() -> None:
    """Use a public name; where a private thing deserves a test of its own, make it public, with a docstring."""
    uses = {
        f"{path.relative_to(TESTS).as_posix()}: {use}"
        for path in TESTS.rglob("*.py")
        for use in private_names(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert uses == set(ACCEPTED)


@pytest.mark.parametrize(
    "text",
    [
        "made._journal.open()",
        "from cbt_plugins.run.plan_runner import _report",
        "from cbt_plugins._build_backend import x",
        'monkeypatch.setattr(engine, "_plan", 1)',
        'monkeypatch.setattr("cbt_plugins.run.plan_runner._report", f)',
        'getattr(engine, "_plan")',
        'mock.patch.object(engine, "_plan")',
        "self.engine._plan",
    ],
)
def test_a_private_name_is_seen(text: str) -> None:
    assert list(private_names(ast.parse(text)))


@pytest.mark.parametrize("text", ["self._made", "super()._made()", "row._replace(a=1)", "for _ in x: y.__dict__"])
def test_own_names_are_not_counted(text: str) -> None:
    assert not list(private_names(ast.parse(text)))
