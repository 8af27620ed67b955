"""How nodes are reached: one file for each transport, with a line in the group cbt_plugins.transports of setup.cfg."""
