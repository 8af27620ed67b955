"""YAML text -> checked data with positions, errors and JSON Schema -> the typed, frozen plan of each run."""
