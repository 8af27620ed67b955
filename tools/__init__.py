"""The command `cbt-tools VERB`."""
