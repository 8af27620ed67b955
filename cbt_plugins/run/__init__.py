"""A run: its plan, phase after phase, with buckets, events, waits and the archive."""
