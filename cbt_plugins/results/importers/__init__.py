"""Results of other programs as run records: one file for each format."""
