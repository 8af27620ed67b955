"""How nodes are reached: one file for each transport."""
