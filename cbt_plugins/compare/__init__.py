"""Archives beside each other: what differs between them, what changed, and what chance may have done."""
