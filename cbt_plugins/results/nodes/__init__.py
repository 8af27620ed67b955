"""What nodes, daemons, disks and interfaces did in a phase, and what limited it."""
