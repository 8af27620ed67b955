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


@pytest.fixture
def world() -> Connections:
    """A healthy cluster of four nodes with an OSD each."""
    from faults_world import Connections

    return Connections()
