"""Make an unmodified cbt.py know our benchmarks and monitors: an import hook, and nothing else."""

# Every interpreter of the environment runs start(): `sys` is all that is imported until a module of one
# of these names is looked for, and a module that does not come from a CBT tree is left alone.

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Optional, Sequence

_PATCHES = {
    "settings": "patch_settings",
    "benchmarkfactory": "patch_benchmarkfactory",
    "monitoring": "patch_monitoring",
    "monitoring.monitoring_factory": "patch_monitoring_factory",
}
_MARKS = ("cbt.py", "settings.py", "common.py", "benchmarkfactory.py")


class Finder:
    """Finder of CBT's modules, as Python itself finds them, that patches them after they have been executed."""

    of_cbt_plugins = True

    @classmethod
    def find_spec(
        cls,
        fullname: str,
        path: "Optional[Sequence[str]]" = None,
        target: "Optional[ModuleType]" = None,
    ) -> "Optional[ModuleSpec]":
        if fullname not in _PATCHES:
            return None
        from importlib.machinery import PathFinder

        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None or not _is_of_cbt(spec):
            return None
        execute = spec.loader.exec_module

        def exec_module(module: "ModuleType") -> None:
            execute(module)
            try:
                from cbt_plugins.cbt import cbt_patches
            except Exception as error:  # CBT itself works without us
                print(f"cbt-plugins is not active: {error}", file=sys.stderr)
            else:
                cbt_patches.patch(_PATCHES[fullname], module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _is_of_cbt(spec: "ModuleSpec") -> bool:
    import os

    if not spec.origin:
        return False
    tree = os.path.dirname(os.path.abspath(spec.origin))
    if spec.name.startswith("monitoring") and os.path.basename(tree) == "monitoring":
        tree = os.path.dirname(tree)
    return all(os.path.isfile(os.path.join(tree, mark)) for mark in _MARKS)


def install() -> None:
    """Install the hook once; CBT_PLUGINS=off in the environment leaves CBT as it is."""
    if not any(getattr(finder, "of_cbt_plugins", False) for finder in sys.meta_path):
        import os

        if os.environ.get("CBT_PLUGINS") != "off":
            sys.meta_path.insert(0, Finder)


def start() -> None:
    """Install the hook at the start of an interpreter, and leave no other trace.

    A package that stayed imported would win over a checkout of this project that comes first on sys.path: its
    tests would test the installation, and pip could not build a newer version.
    """
    install()
    sys.modules.pop("cbt_plugins.autoload", None)
    sys.modules.pop("cbt_plugins", None)
