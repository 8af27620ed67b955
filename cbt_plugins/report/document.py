"""One HTML file that needs nothing else: no network, no server, no other file."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any, Sequence

import jinja2
from markupsafe import Markup

from cbt_plugins.report import numbers

_HERE = Path(__file__).parent
_NOTHING_ELSE = "base-uri 'none'; form-action 'none'"


def document(template: str, scripts: Sequence[str], data: Any, **values: Any) -> str:
    """The template with its style, its scripts and what they draw (`data`, JSON) in it.

    The same input gives the same bytes. No text among the values is taken for markup.
    """
    style = _asset("uplot.min.css") + _asset("page.css")
    script = "".join(map(_asset, ("uplot.min.js", "charts.js", *scripts)))
    # a chart has two pixels for each of the screen at least, so that it is sharp on paper too
    script = f"(() => {{\nconst devicePixelRatio = Math.max(2, window.devicePixelRatio);\n{script}}})();\n"
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(str(_HERE)),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        plain=numbers.plain, count=numbers.count, change=numbers.percent, success=numbers.success,
        seconds=numbers.seconds, size=numbers.size, size_class=numbers.size_class, when=numbers.when,
        share=numbers.share,
    )  # fmt: skip
    return environment.get_template(template).render(
        **values,
        style=Markup(style),
        script=Markup(script),
        # "<" would let a text of the archive end the script element
        data=Markup(json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")),
        policy=f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; {_NOTHING_ELSE}",
    )


def _asset(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """What a content security policy calls an inline block by."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
