"""Comparisons of archives: what differs between them, what changed, and what may be chance."""
