"""SQL queries on an archive: tables of DuckDB, in memory. docs/SQL.md has examples."""
