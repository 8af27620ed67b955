"""YAML section -> typed, frozen plan."""
