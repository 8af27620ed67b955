"""Bisect: which commit of a git repository made a metric of a cycle worse."""
