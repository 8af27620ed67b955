"""The signature by which `report` knows a summary that it has made for this user on this machine, with this program.

Making the summary of a long run anew takes minutes; and an archive of somebody else may have a forged one.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import Any, Dict, Mapping, Optional

import cbt_plugins
from cbt_plugins.cluster import user_seal


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


@lru_cache(maxsize=1)
def program_sum() -> str:
    """Return the SHA-256 of the program that makes summaries: a developer's version does not change with each edit."""
    package = Path(cbt_plugins.__file__).parent
    digest = hashlib.sha256()
    for path in sorted([*package.rglob("*.py"), *package.rglob("*.json")]):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(package)} {len(content)}\n".encode() + content)
    return digest.hexdigest()
