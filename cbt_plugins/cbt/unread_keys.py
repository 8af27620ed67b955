"""Keys that nobody reads: of CBT's own benchmarks, of `cluster:` and at the top, each with its place."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Set, Tuple

from cbt_plugins.config import plugins
from cbt_plugins.config.errors import ErrorAt, near_miss
from cbt_plugins.config.section_to_plan import CBT_KEYS, KEYS_SET_BY_CBT
from cbt_plugins.config.top_level import ignored_recovery_test, unknown_keys
from cbt_plugins.config.yaml_source import YamlSource

#: keys that CBT's base class reads, which is not found in every tree
_OF_BASE = CBT_KEYS | KEYS_SET_BY_CBT | {"osd_ra"}


def unread_keys(source: YamlSource, tree: Optional[Path]) -> List[ErrorAt]:
    """Return the keys that CBT's classes in `tree` do not read: CBT says nothing of them and uses its defaults.

    A class reads what its module, and the modules of packages that it imports, have as text anywhere: a key that is
    here is not read; one that is not here may be unread all the same. Without a tree, only keys at the top and in
    `cluster:` are known: those that some version of CBT reads. `recovery_test:` is here where benchmarks ignore it.
    """
    if not isinstance(source.data, dict):
        return []
    unknown = list(unknown_keys(source))
    if unknown and tree:
        texts = _texts_of_tree(tree)
        unknown = [error for error in unknown if error.path[-1] not in texts]
    unknown += ignored_recovery_test(source)
    benchmarks = source.data.get("benchmarks")
    return [*unknown, *(_unread(source, tree, benchmarks) if tree and isinstance(benchmarks, dict) else ())]


def _texts_of_tree(tree: Path) -> Set[str]:
    """Return every text in the modules that serve all benchmarks: those at the top, and of clusters."""
    texts: Set[str] = set()
    for module in (*tree.glob("*.py"), *(tree / "cluster").glob("*.py"), *(tree / "monitoring").glob("*.py")):
        texts |= _texts(tree, module)[0]
    return texts


def _unread(source: YamlSource, tree: Path, benchmarks: Dict[object, object]) -> Iterator[ErrorAt]:
    for name, section in benchmarks.items():
        module = tree / "benchmark" / f"{name}.py"
        if name in plugins.references(plugins.BENCHMARKS) or not isinstance(section, dict) or not module.is_file():
            continue
        texts, read_keys = _texts(tree, module)
        for key in section:
            if not texts or not isinstance(key, str) or key in texts | _OF_BASE:
                continue
            near = near_miss(key, read_keys - set(section))
            text = f"{module} does not read this key" + (f"; did you mean {near!r}?" if near else "")
            yield source.error_at(("benchmarks", str(name), key), text, of_key=True)


def _texts(tree: Path, module: Path) -> Tuple[Set[str], Set[str]]:
    """Return every text in a module and in those that it imports from packages of the tree, and what `get` is given."""
    texts: Set[str] = set()
    read_keys: Set[str] = set()
    left, seen = [module], {module}
    while left:
        current = left.pop()
        try:
            nodes = list(ast.walk(ast.parse(current.read_bytes())))
        except (OSError, SyntaxError, ValueError):  # who cannot read all of it knows nothing
            return set(), set()
        texts.update(_text(node) for node in nodes)
        for node in nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
                read_keys.update(_text(word) for word in node.args[:1])
        for imported in _imported(tree, current, nodes):
            if imported not in seen and imported.is_file():
                seen.add(imported)
                left.append(imported)
    return texts, read_keys - {""}


def _text(node: ast.AST) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _imported(tree: Path, module: Path, nodes: List[ast.AST]) -> Iterator[Path]:
    """Yield the files that `from package.module import name` may mean; modules at the top serve all benchmarks."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            start = module.parents[node.level - 1] if node.level else tree
            folder = start.joinpath(*(node.module or "").split("."))
            if folder.with_suffix(".py").parent != tree:
                yield folder.with_suffix(".py")
            yield from (folder / f"{name.name}.py" for name in node.names)
