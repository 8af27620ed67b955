"""What the requests of a phase say: counts, latencies and series."""
