"""One file for each benchmark: its section of the YAML, its phases, and the class that CBT instantiates."""
