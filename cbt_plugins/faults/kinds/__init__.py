"""Fault kinds, one file per family."""
