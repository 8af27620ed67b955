"""The same seam on the oldest and on the newest Python that are here, each with its own installation."""

from __future__ import annotations

from pathlib import Path
from typing import List

import pytest
from cbt_trees import Trees
from interpreters import make_venv, run, venv_with

from .conftest import Cbt, install, site_packages

pytestmark = pytest.mark.upstream


@pytest.fixture(scope="session", params=["3.9", "newest"])
def other(
    request: pytest.FixtureRequest, wheels: List[Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    made = venv_with(request.param, tmp_path_factory.mktemp("other") / "venv", ["PyYAML", "pydantic", "lxml"])
    install(made, wheels)
    return made


@pytest.mark.parametrize("era", ["2021", "master"])
def test_the_seam_works(other: Path, era: str, trees: Trees, tmp_path: Path) -> None:
    cbt = Cbt(other, tmp_path)
    config = cbt.config(
        {
            "example": {"size": [4, 8]},
            "hsbench": {"size": ["4K", "8K"], "client_endpoints": "s3", "duration": 1},
        }
    )
    outcome = cbt.cbt(trees[era], config)
    assert outcome.status == 0, outcome.output
    assert outcome.calls() == [1, 1, 1, 1]
    assert "8 of 8 planned runs executed" in outcome.output

    bad = cbt.cbt(
        trees[era], cbt.config({"warp": {"s3": {"urls": ["http://192.0.2.5"]}, "sise": "4K"}}), "bad"
    )
    assert bad.status == 2, bad.output
    assert "sise" in bad.output


def test_the_built_in_loop_works(other: Path, tmp_path: Path) -> None:
    cbt = Cbt(other, tmp_path)
    outcome = cbt.loop(cbt.config({"example": {"size": [4, 8]}}))
    assert outcome.status == 0, outcome.output
    assert outcome.calls() == [1, 1, 1, 1]


def test_uninstalling_takes_the_hook_away(wheels: List[Path], tmp_path: Path, python: Path) -> None:
    made = make_venv(python, tmp_path / "venv")
    install(made, wheels)
    files = [site_packages(made) / name for name in ("cbt_plugins.pth", "cbt_plugins.start")]
    assert all(file.is_file() for file in files)
    assert run([str(made), "-m", "pip", "uninstall", "-q", "-y", "cbt-plugins"]).returncode == 0
    assert not any(file.exists() for file in files)


def test_an_interpreter_starts_without_a_trace_of_us(python: Path) -> None:
    """The hook is there; modules that it would have to import for it are not."""
    script = "import sys; print(sorted(sys.modules)); print(sys.meta_path)"
    with_hook = run([str(python), "-c", script])
    without = run([str(python), "-S", "-c", script])
    assert with_hook.stderr == ""
    assert "cbt_plugins.autoload.Finder" in with_hook.stdout
    assert "cbt_plugins.autoload.Finder" not in without.stdout
    for module in ("cbt_plugins", "pathlib", "typing", "importlib.metadata", "yaml", "re", "functools"):
        assert f"'{module}'" not in with_hook.stdout.splitlines()[0], module


def test_a_stranger_of_the_same_name_is_left_alone(python: Path, tmp_path: Path) -> None:
    """`settings` and `monitoring` are names that many projects use."""
    for name in ("settings", "monitoring", "benchmarkfactory"):
        (tmp_path / f"{name}.py").write_text("def initialize(ctx): pass\n")
    script = (
        "import sys; sys.path.insert(0, '.'); import settings, monitoring, benchmarkfactory; "
        "print(settings.initialize.__module__, hasattr(settings.initialize, '__wrapped__'), "
        "'cbt_plugins' in sys.modules)"
    )
    done = run([str(python), "-c", script], cwd=str(tmp_path))
    assert done.stdout.split() == ["settings", "False", "False"], done.stderr


def test_a_checkout_that_comes_first_wins_over_the_installation(python: Path, tmp_path: Path) -> None:
    (tmp_path / "cbt_plugins").mkdir()
    (tmp_path / "cbt_plugins" / "__init__.py").write_text("__version__ = 'of the checkout'\n")
    done = run([str(python), "-c", "import cbt_plugins; print(cbt_plugins.__version__)"], cwd=str(tmp_path))
    assert done.stdout.strip() == "of the checkout", done.stderr
