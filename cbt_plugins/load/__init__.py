"""One module per load generator."""
