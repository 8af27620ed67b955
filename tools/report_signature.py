"""The signature by which `report` knows a summary that it has made for this user on this machine, with this program.

Making the summary of a long run anew takes minutes; and an archive of somebody else may have a forged one.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional

from cbt_plugins.cluster import user_seal
from cbt_plugins.programs import program_sum


def sign(sums: Mapping[str, Any]) -> Optional[str]:
    """Return the signature of a summary with these sums; None without a key that only this user can read."""
    try:
        return user_seal.of(_content(sums))
    except user_seal.NoKey:
        return None


def holds(signature: Any, sums: Mapping[str, Any]) -> bool:
    """Tell whether `sign` made a signature for these sums."""
    try:
        return user_seal.holds(signature, _content(sums))
    except user_seal.NoKey:
        return False


def _content(sums: Mapping[str, Any]) -> Dict[str, Any]:
    return {"summary of": dict(sums), "program": program_sum()}
