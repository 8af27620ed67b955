"""What watches while phases run, one module per monitor."""
