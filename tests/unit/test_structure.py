"""The shape of the project: the order of imports, each class name once, short parameter lists, nouns for modules."""

from __future__ import annotations

import ast
import configparser
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Dict, Iterator, List, Set

import pytest

from cbt_plugins.config import plugins

PROJECT = Path(__file__).resolve().parents[2]
FOLDERS = ("cbt_plugins", "monitors", "tools")
#: names that hold no noun: of modules, and of all else
VAGUE = {"utils", "helpers", "common", "misc"}
PRONOUNS = re.compile("_*(its|theirs|made|found|known|told|said|asked|there|one|other|rest|whole|what|so|more)_*")
#: what files, templates and documented examples call so, and the argument of Python's own operators
KEPT = {"verdict_chances.found", "sequential.found", "plan_preview.what", "step.what", "sentence.more"}
KEPT |= {"generator.other", "histogram.other"}
#: with what a docstring begins that says neither what a function does nor what it returns
NO_VERBS = re.compile(
    "(A|An|The|It|Its|What|How|Whether|When|Where|Why|Which|Who|None|No|Of|One|All|Every|Each|There|Those|That|True|False"
    "|Only|Everything|Until|Without|Seconds|Bytes|Mean|Means|Median|Probability|[^A-Z].*|[A-Z]+)"
)
PARAMETERS = 6
#: lines of what is read in one sitting
FUNCTION, MODULE = 60, 500
#: where engines have names because no class is there to ask: the archives of earlier runs
ENGINES_OF_ARCHIVES = "cbt_plugins.results.engines_of_archives"
#: who else imports from the file of an engine: the key of a section that is the engine's own
SECTIONS_OF_ENGINES = {
    "cbt_plugins.benchmarks.common_keys: cbt_plugins.load.cbt_load",  # cbt_load:
    "cbt_plugins.benchmarks.common_keys: cbt_plugins.load.warp",  # warp_path:
    "cbt_plugins.benchmarks.phase_keys: cbt_plugins.load.warp",  # warp: of a cycle
    "cbt_plugins.benchmarks.by_size: cbt_plugins.load.warp",  # warp_mixed:
}
#: names of generators that stand for something else: of result files, of processes on a node
OTHER_NAMES = ("cbt_plugins.results.importers.", "cbt_plugins.monitors.node_daemons")
#: names of engines beside those in their own files: the default of `engine:`, which all others read from the plan, and
#: the program that is also a null server
NAMED_ONCE = {("cbt_plugins.plan", "warp"), ("cbt_plugins.programs", "cbt-load")}


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


def test_every_test_file_has_a_name_of_its_own() -> None:
    """Pytest imports the files of folders without `__init__.py` by their bare names."""
    folders: Dict[str, List[str]] = defaultdict(list)
    for path in sorted((PROJECT / "tests").rglob("test_*.py")):
        if not (path.parent / "__init__.py").exists():
            folders[path.name].append(str(path.parent.relative_to(PROJECT)))
    assert {name: places for name, places in folders.items() if len(places) > 1} == {}


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


def test_each_package_is_installed() -> None:
    parser = configparser.ConfigParser()
    parser.read(PROJECT / "setup.cfg", encoding="utf-8")
    listed = parser["options"]["packages"].split()
    packages = {name.rpartition(".")[0] for name in modules() if name != "cbt_plugins"}
    assert sorted(listed) == sorted(packages)


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
        and re.match(r"(Return|Yield)s? (what|why|its|it|them)\b", ast.get_docstring(node) or "")
    ]
    assert not vague


def is_property(function: ast.FunctionDef) -> bool:
    return any("property" in ast.unparse(decorator) for decorator in function.decorator_list)


def test_docstrings_of_functions_begin_with_a_verb() -> None:
    """Of a property, which is read like a value, with a noun."""
    openings = {
        f"{name}.{node.name}": (ast.get_docstring(node) or "Nothing").split()[0].rstrip(",:;.")
        for name, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and not is_property(node)
    }
    assert {name: word for name, word in openings.items() if NO_VERBS.fullmatch(word) and word != "SIGKILL"} == {}


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


def test_no_form_asks_for_the_kind_of_a_block() -> None:
    """A block names its method of a form (formatting/blocks.py), so that no form forgets a kind."""
    blocks = trees()["cbt_plugins.formatting.blocks"]
    kinds = {node.name for node in blocks.body if isinstance(node, ast.ClassDef)}
    asked = [
        f"{module}:{call.lineno}"
        for module, tree in trees().items()
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "isinstance"
        if kinds & {node.id for node in ast.walk(call) if isinstance(node, ast.Name)}
    ]
    assert {"TableGrid", "Words"} <= kinds and not asked


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


def test_functions_and_modules_are_read_in_one_sitting() -> None:
    long = {
        f"{name}.{node.name}": (node.end_lineno or 0) - node.lineno + 1
        for name, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    assert {name: lines for name, lines in long.items() if lines > FUNCTION} == {}
    assert [name for name, path in modules().items() if path.read_text().count("\n") > MODULE] == []


def test_modules_are_named_after_nouns(capsys: pytest.CaptureFixture[str]) -> None:
    names = modules()
    assert [name for name in names if name.rpartition(".")[2].strip("_") in VAGUE] == []
    with capsys.disabled():
        print(f"\n{len(names)} modules")


#: a default that a description says in figures; those of a key are beside the text, and the text is made of them
LITERAL_DEFAULT = re.compile(r"[Dd]efaults?(?::| is)? *\(?[0-9/]")
#: defaults that are in another room than the key, or of another program
FAR_DEFAULTS = {
    "cbt_plugins.monitors.recovery: default 0",  # of the agent, which nodes get
    "cbt_plugins.tools.watch: default: 1",  # 127.0.0.1
}


def test_no_description_says_a_default_in_figures() -> None:
    literal = {
        f"{name}: {default}"
        for name, tree in trees().items()
        for word in ast.walk(tree)
        if isinstance(word, ast.keyword) and word.arg in ("description", "help")
        for part in ast.walk(word.value)
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
        for default in LITERAL_DEFAULT.findall(part.value)
    }
    assert literal == FAR_DEFAULTS


#: percent of a share by hand, or without a space: in files and options, whose spelling is `30%`, by format_percent
PERCENT_BY_HAND = re.compile(r"\{[^{}]*\b100(\.0)? ?\*[^{}]*\} ?%|:[-+.0-9]*%\}|\{[^{}]+\}%")
FILES_OF_PERCENT = {"cbt_plugins.config.units", "cbt_plugins.config.objective", "cbt_plugins.formatting"}
# files of another program
FILES_OF_PERCENT |= {"cbt_plugins.config.converters.cosbench", "cbt_plugins.results.importers.cosbench"}


def test_percent_has_one_spelling() -> None:
    """People read `12.3 %`, of formatting.percent."""
    by_hand = [
        f"{name}: {line.strip()}"
        for name, path in modules().items()
        if name not in FILES_OF_PERCENT
        for line in path.read_text().splitlines()
        if PERCENT_BY_HAND.search(line)
    ]
    assert by_hand == []


#: a number and a unit of bytes in one word
SIZE_BY_HAND = re.compile(r"\}[KMGTP]i?B\b")
#: who needs the spelling of files, `64KiB`: the schema, messages about values of a file, and defaults of options
FILES_OF_SIZE = {
    "cbt_plugins.config.units",
    "cbt_plugins.config.converters.elbencho",
    "cbt_plugins.benchmarks.by_size",
    "cbt_plugins.tools.size",
    "cbt_plugins.tools.lab",
}


def test_sizes_have_one_spelling_in_outputs() -> None:
    """People read `64 KiB`, of formatting.size and about_size."""
    # a column of a file of another program is `firstMiB`
    texts = {name: path.read_text() for name, path in modules().items() if not name.endswith("importers.elbencho")}
    assert {name for name, text in texts.items() if re.search(r"\bformat_size\b", text)} - {
        "cbt_plugins.formatting"
    } == FILES_OF_SIZE
    assert [name for name, text in texts.items() if SIZE_BY_HAND.search(text)] == []


def names_of_engines(node: ast.AST, displays: Dict[str, Set[str]]) -> Set[str]:
    """The names of our engines in an operand: a text, a set, tuple, list or dict of texts, or a variable with one."""
    if isinstance(node, ast.Name):
        return displays.get(node.id, set())
    elements = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", [node])
    texts = {element.value for element in elements if isinstance(element, ast.Constant)}
    return texts & set(plugins.built_in(plugins.GENERATORS))


def decides_by(tree: ast.Module) -> Iterator[str]:
    """Yield "line: engines" of each decision by the name of an engine.

    The name is compared, looked up, fallen back to, or the value of a variable or a field.
    """
    displays = {
        target.id: names_of_engines(node.value, {})
        for node in ast.walk(tree)
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        operands: List[ast.AST] = []
        if isinstance(node, ast.Compare):
            operands = [node.left, *node.comparators]
        elif isinstance(node, ast.BoolOp):
            operands = list(node.values)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, (ast.BitAnd, ast.Sub)):
            operands = [node.left, node.right]
        elif isinstance(node, ast.IfExp):
            operands = [node.body, node.orelse]
        elif isinstance(node, ast.Subscript):
            operands = [node.value]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            operands = [node.func.value]
        elif isinstance(node, ast.Return) and isinstance(node.value, ast.Constant):
            operands = [node.value]
        elif isinstance(node, ast.Call):
            # an argument of this name, and the default of a key
            is_key = isinstance(node.func, ast.Name) and node.func.id == "Field"
            operands = [word.value for word in node.keywords if word.arg == "engine"] + node.args[: int(is_key)]
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            of_item = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript)
            operands = [node.value] if of_item or isinstance(node.value, ast.Constant) else []
        for operand in operands:
            for name in names_of_engines(operand, displays):
                yield f"{getattr(node, 'lineno', 0)}: {name}"


def test_no_decision_is_made_by_the_name_of_an_engine() -> None:
    """Whoever wants to know what an engine can do asks its class; only the file of an engine knows its name."""
    references = plugins.references(plugins.GENERATORS).items()
    own = {(reference.partition(":")[0], engine) for engine, reference in references}
    decisions = [
        f"{name}:{decision}"
        for name, tree in trees().items()
        if name != ENGINES_OF_ARCHIVES and not name.startswith(OTHER_NAMES)
        for decision in decides_by(tree)
        if (name, decision.partition(": ")[2]) not in own | NAMED_ONCE
    ]
    assert decisions == []


def test_who_imports_from_the_file_of_an_engine() -> None:
    own = {reference.partition(":")[0] for reference in plugins.references(plugins.GENERATORS).values()}
    importers = {
        f"{name}: {node.module}"
        for name, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in own and name not in own
    }
    assert importers == SECTIONS_OF_ENGINES


@pytest.mark.parametrize(
    "text",
    [
        'phase.engine == "warp"',
        '"warp" != engine',
        'engine in ("warp", "cbt-load")',
        'ENGINES = ("warp", "cbt-load")\nself.engine in ENGINES',
        'checks = {"warp": 1, "cbt-load": 2}\nchecks[engine]',
        'checks = {"warp": 1}\nchecks.get(engine)',
        '{"hsbench": 1}[engine]',
        'so_far.by & {"cbt-load", None}',
        'usual or "cbt-load"',
        'None if self.wait else "cbt-load"',
        'def f():\n    return "warp"',
        'engine: Engine = Field("cbt-load", description="which")',
        'Phase("read", engine="cbt-load")',
        'section["engine"] = "cbt-load"',
        'class Phase:\n    engine: str = "warp"',
        'SERVER = "cbt-load"',
        'ENGINES: Set[str] = {"warp", "cbt-load"}\nself.engine in ENGINES',
    ],
)
def test_a_decision_by_the_name_of_an_engine_is_seen(text: str) -> None:
    assert list(decides_by(ast.parse(text)))
