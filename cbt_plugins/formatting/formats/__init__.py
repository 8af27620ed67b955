"""Formats of output, one file each: those that `--format` and the suffix of `-o` name."""

from __future__ import annotations

from typing import Dict, Type

from cbt_plugins.formatting.formats.csv import Csv
from cbt_plugins.formatting.formats.format import Format
from cbt_plugins.formatting.formats.html import Html
from cbt_plugins.formatting.formats.json import Json
from cbt_plugins.formatting.formats.markdown import Markdown
from cbt_plugins.formatting.formats.terminal import Terminal

#: the formats that several verbs have, by their names
FORMATS: Dict[str, Type[Format]] = {format_.name: format_ for format_ in (Terminal, Json, Csv, Markdown, Html)}
