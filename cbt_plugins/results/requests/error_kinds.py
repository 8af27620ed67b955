"""Kinds of the errors of requests, by the texts that load generators give."""

from __future__ import annotations

from typing import Optional

#: of cbt-load: the first words of its errors (tools/companion/internal/s3/error_kinds.go)
ERROR_KINDS = ("http", "refused", "reset", "timeout", "checksum", "length", "etag", "cut", "protocol")
#: those that say that an object is not what was written or listed
OTHER_OBJECT = ("checksum", "length", "etag")


def error_kind(text: str) -> Optional[str]:
    """Return the kind of an error of cbt-load, the word before its colon; None for other generators' errors."""
    word = text.partition(":")[0]
    return word if word in ERROR_KINDS else None


def is_missing_object(text: str) -> bool:
    """Return whether the gateway said that there is no such object: as cbt-load writes it, and as warp does."""
    return text.startswith("http: 404") or "The specified key does not exist" in text
