"""The only room that touches the host: a CBT checkout, or the built-in run loop."""
