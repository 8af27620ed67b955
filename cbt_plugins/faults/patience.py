"""How long a run waits for its cluster: as its file says, and as its journal tells whoever undoes it later."""

from __future__ import annotations

from dataclasses import replace
from typing import Mapping, Optional

from cbt_plugins.faults.record import UndoJournal
from cbt_plugins.faults.scene import Limits
from cbt_plugins.plan import Settings

#: the names of `settings: limits:` -> those of `Limits`
NAMES: Mapping[str, str] = {"command": "quick", "daemons": "slow", "down": "down", "back": "back", "boot": "boot"}

_EVENT = "limits"


def limits_of(settings: Settings, base: Optional[Limits] = None) -> Limits:
    """The limits of a plan; what it does not name is as in `base`."""
    base = base or Limits()
    named = replace(base, **{NAMES[name]: seconds for name, seconds in settings.limits.items()})
    # a map that is slow to show what has gone down shows it as up for as long
    return replace(named, doubt=max(base.doubt, named.down)) if named.down > base.down else named


def remembered(journal: UndoJournal, settings: Optional[Settings]) -> Settings:
    """The settings of a run, whose limits are written down; without any, the limits that were."""
    lines = [line["seconds"] for line in journal.records if line["event"] == _EVENT]
    before = lines[-1] if lines else {}
    if settings is None:
        return Settings(limits=before)
    if dict(settings.limits) != before:
        journal.say(_EVENT, seconds=dict(settings.limits))
    return settings
