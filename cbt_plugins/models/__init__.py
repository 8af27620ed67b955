"""What a cluster should give, by counting: no cluster, no archive, no library. docs/MODELS.md derives every formula."""
