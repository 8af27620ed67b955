"""Measurements of `./run bench scale`: a module each, with a `main`."""
