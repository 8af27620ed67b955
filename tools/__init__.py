"""What people run: one command, `cbt-tools VERB`."""
