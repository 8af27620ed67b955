"""What we ask and tell Ceph: the one room that knows its commands and the JSON of its releases (16 to 20)."""

from __future__ import annotations

from .cluster import BucketStats, Ceph, CephError, Keys, NoAnswer
from .status import Status
from .watch import StatusWatch

__all__ = ["BucketStats", "Ceph", "CephError", "Keys", "NoAnswer", "Status", "StatusWatch"]
