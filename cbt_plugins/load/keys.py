"""How the generators get their S3 keys: in their environment, and nowhere else."""

from __future__ import annotations

from typing import Dict


def environment(access_key: str, secret_key: str) -> Dict[str, str]:
    """The variables that warp and cbt-load read."""
    return {
        "WARP_ACCESS_KEY": access_key,
        "WARP_SECRET_KEY": secret_key,
        "AWS_ACCESS_KEY_ID": access_key,
        "AWS_SECRET_ACCESS_KEY": secret_key,
    }
