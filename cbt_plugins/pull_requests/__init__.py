"""A verdict for a pull request: both sides built, deployed and measured in turns, until it is sure or time is over."""
