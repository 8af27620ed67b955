"""Run and stream commands on nodes."""
