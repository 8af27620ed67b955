"""Results in the forms of other programs: CBT's compare.py and report generators, teuthology, Prometheus, CSV."""
