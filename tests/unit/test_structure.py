"""The shape of the project: the order of imports, each class name once, short parameter lists, nouns for modules."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Dict, Iterator, List

import pytest

PROJECT = Path(__file__).resolve().parents[2]
FOLDERS = ("cbt_plugins", "monitors", "tools")
#: names that hold no noun: of modules, and of all else
VAGUE = {"utils", "helpers", "common", "misc"}
PRONOUNS = re.compile("_*(its|theirs|made|found|known|told|said|asked|there|one|other|rest|whole|what|so|more)_*")
#: what files, templates and documented examples call so, and the argument of Python's own operators
KEPT = {"planning.found", "sequential.found", "preview.what", "step.what", "sentence.more"}
KEPT |= {"generator.other", "histogram.other"}
PARAMETERS = 6



def modules() -> Dict[str, Path]:
    """Dotted name, as installed, -> file."""
    found: Dict[str, Path] = {}
    for folder in FOLDERS:
        for path in sorted((PROJECT / folder).rglob("*.py")):
            dotted = ".".join(path.relative_to(PROJECT).with_suffix("").parts)
            dotted = dotted if folder == "cbt_plugins" else f"cbt_plugins.{dotted}"
            found[dotted.removesuffix(".__init__")] = path
    return found


@cache
def trees() -> Dict[str, ast.Module]:
    return {name: ast.parse(path.read_text()) for name, path in modules().items()}


def test_imports_run_one_way_and_in_no_circle(tmp_path: Path) -> None:
    """The contracts of setup.cfg, on a copy that is laid out as an installation."""
    if importlib.util.find_spec("importlinter") is None:
        pytest.skip("needs import-linter: pip install -e '.[lint]'")
    package = tmp_path / "cbt_plugins"
    for folder in FOLDERS:
        target = package if folder == "cbt_plugins" else package / folder
        shutil.copytree(PROJECT / folder, target, ignore=shutil.ignore_patterns("__pycache__", "companion"))
    program = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"
    words = ["--config", str(PROJECT / "setup.cfg"), "--no-cache"]
    # the working directory comes first among its folders: the copy, and not the checkout
    done = subprocess.run([sys.executable, "-c", program, *words], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[done.stdout.find("Contracts") :] + done.stderr


def test_every_module_can_be_imported() -> None:
    """In a process of its own: also what is imported when it is needed only, and what `./run bench` runs."""
    names = [name for name in modules() if not name.endswith("__main__")]
    perf = PROJECT / "tests" / "perf"
    program = (
        "import importlib, runpy, sys\n"
        "for name in sys.argv[1:]: runpy.run_path(name) if '/' in name else importlib.import_module(name)"
    )
    words = [sys.executable, "-c", program, *names, *map(str, sorted(perf.glob("*.py")))]
    environment = {**os.environ, "PYTHONPATH": str(perf)}
    done = subprocess.run(words, cwd=PROJECT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_each_class_name_stands_for_one_thing() -> None:
    homes: Dict[str, List[str]] = defaultdict(list)
    for name, tree in trees().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(name)
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}


def test_docstrings_name_the_thing_that_is_returned() -> None:
    vague = [
        f"{name}.{node.name}"
        for name, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and re.match(r"(Return|Yield)s? what\b", ast.get_docstring(node) or "")
    ]
    assert not vague


def names_in(tree: ast.Module) -> Iterator[str]:
    """Variables, fields, arguments and functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name


def test_names_are_nouns_not_pronouns() -> None:
    """What a thing is stands in its name, not what was done to it."""
    vague = {
        f"{module.rpartition('.')[2]}.{name}"
        for module, tree in trees().items()
        for name in names_in(tree)
        if PRONOUNS.fullmatch(name)
    }
    assert vague == KEPT


def test_no_function_has_more_than_six_parameters() -> None:
    """Without self and cls: parameters that travel together are one object."""
    long: Dict[str, int] = {}
    for name, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                number = len([argument for argument in given if argument.arg not in ("self", "cls")])
                if number > PARAMETERS:
                    long[f"{name}.{node.name}"] = number
    assert long == {}


def test_modules_are_named_after_nouns(capsys: pytest.CaptureFixture[str]) -> None:
    names = modules()
    assert [name for name in names if name.rpartition(".")[2].strip("_") in VAGUE] == []
    with capsys.disabled():
        print(f"\n{len(names)} modules")
