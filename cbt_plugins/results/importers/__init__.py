"""Results of other programs as run records: one file and one line in `setup.cfg` for each format."""
