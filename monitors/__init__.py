"""Monitors: what is watched while phases run, one file for each, with its agent beside it."""
