"""What tests of faults share: a stand-in cluster, and no journal left open."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Iterator

import pytest

if TYPE_CHECKING:
    from faults_world import Connections


@pytest.fixture(autouse=True)
def closed_injectors() -> Iterator[None]:
    """Other tests do not pay for the import."""
    yield
    known = sys.modules.get("faults_world")
    while known is not None and known.MADE:
        known.MADE.pop().close()


@pytest.fixture(autouse=True)
def no_error_of_ours_passes_for_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    """What readers of archives raise beyond the errors of damaged data is raised as it is."""
    source = sys.modules.get("cbt_plugins.results.source")
    if source is not None:
        monkeypatch.setattr(source, "unexpected", lambda path, error: error)


@pytest.fixture
def world() -> Connections:
    """A healthy cluster of four nodes with an OSD each."""
    from faults_world import Connections

    return Connections()
