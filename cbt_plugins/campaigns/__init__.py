"""Campaigns: the same cycle again and again on clusters that differ in one thing, until the answer is sure."""
