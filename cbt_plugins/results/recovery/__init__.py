"""How the cluster took failures, returns and upgrades, and what they cost the clients."""
