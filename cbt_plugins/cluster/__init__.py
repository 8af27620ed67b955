"""Nodes and the Ceph cluster on them: commands, streams, and the JSON of releases 16 to 20."""
