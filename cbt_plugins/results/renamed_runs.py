"""Runs that no verb reads because somebody renamed their folders: each is named in a warning."""

from __future__ import annotations

import logging
import os
from typing import Sequence, Set

log = logging.getLogger(__name__)

#: folders of which a warning has been given
_named: Set[str] = set()


def name_renamed_runs(folders: Sequence[str]) -> None:
    """Warn once of each folder beside runs that has a run's plan, and not the name of a run's folder."""
    for folder in folders:
        is_run = os.path.basename(folder).startswith("id-")
        if not is_run and folder not in _named and os.path.lexists(os.path.join(folder, "plan.json")):
            _named.add(folder)
            log.warning(
                "%s: not read: the name of a run's folder begins with id-: rename this one, or give its path", folder
            )
