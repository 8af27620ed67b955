"""Run and stream commands on nodes: pdsh where it is, ssh where not, a local shell for this machine itself."""

from __future__ import annotations

from .remote import Remote
from .result import RemoteError, Result
from .stream import Stream

__all__ = ["Remote", "RemoteError", "Result", "Stream"]
