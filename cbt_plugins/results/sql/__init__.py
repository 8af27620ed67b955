"""An archive for free questions: tables of DuckDB, in memory. docs/SQL.md has questions and answers."""
