"""Archive -> tables. Needs no cluster, no node and no CBT."""
