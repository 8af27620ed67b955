"""The hosts of a run: a CBT checkout, or the built-in run loop. No other room touches CBT's modules."""
