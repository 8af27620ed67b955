"""The classes that CBT instantiates: thin presets of phases."""
