"""`python -m cbt_plugins.config.schema [--write]`: print the JSON Schema, or write it and the reference."""

from __future__ import annotations

import argparse
import sys

from cbt_plugins.config import reference, schema


def main() -> int:
    """Print, or write what is generated in a checkout."""
    parser = argparse.ArgumentParser(prog="python -m cbt_plugins.config.schema", description=__doc__)
    parser.add_argument(
        "--write", action="store_true", help="write the shipped schema and docs/CONFIG.md's tables"
    )
    if not parser.parse_args().write:
        sys.stdout.write(schema.text())
        return 0
    schema.FILE.write_text(schema.text(), encoding="utf-8")
    if reference.PAGE.is_file():
        page = reference.PAGE.read_text(encoding="utf-8")
        reference.PAGE.write_text(reference.refresh(page), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
