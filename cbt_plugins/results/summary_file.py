"""The file summary.json of a run: its schema, reading and writing it, and making it anew where it is not current.

Report, compare, CBT's compare.py, export and SQL read summaries here. Needs numpy only where one has to be made.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import Any, Callable, Collection, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple

from cbt_plugins.checksums import FILE as SUMS
from cbt_plugins.checksums import check_sums, sum_of_sums
from cbt_plugins.journal import blocks_of, read_json, read_text, write_whole
from cbt_plugins.metrics import TOTAL
from cbt_plugins.plan import has_aged, is_calibration, is_measurement
from cbt_plugins.results.archive import name_of
from cbt_plugins.results.compiled_schema import Matches, compile_schema
from cbt_plugins.results.result_file import Unreadable, reading

FILE = "summary.json"
#: 1 (a development version): phases by warp and cbt-hybrid. 2 (0.2.0): the terms of docs/GLOSSARY.md
VERSION = 2
#: the first line of a file beside SHA256SUMS: the sums of that, and of the other lines, and maybe who made it
_SEAL, _SUMS, _SIGNATURE = "seal", ("files", "summary"), "made"
_LINE = re.compile(rf'^ "{_SEAL}": \{{[^\n]*\}},\n', re.M)
#: warnings that rows were read, or could not be, in place of aggregates
_OF_ROWS = ("no-aggregates", "no-rows")
#: letters that are hashed at a time
_PIECE = 1 << 20

SCHEMA = Path(__file__).with_name("summary.schema.json")


@lru_cache(maxsize=1)
def json_schema() -> Dict[str, Any]:
    """Return the JSON Schema."""
    return json.loads(SCHEMA.read_text(encoding="utf-8"))


def check(data: Any) -> None:
    """Raise ValueError with the first places where `data` is not what the schema says.

    Beyond JSON Schema, NaN and infinity are no numbers. ImportError: jsonschema, which says where, is missing.
    """
    if _matches_schema()(data):
        return
    errors = [f"{error.json_path}: {error.message[:200]}" for error in islice(validator().iter_errors(data), 5)]
    if errors:
        raise ValueError("not a valid summary: " + "; ".join(errors))


@lru_cache(maxsize=1)
def _matches_schema() -> Matches:
    return compile_schema(json_schema())


@lru_cache(maxsize=1)
def validator() -> Any:
    """Return the validator of jsonschema for a summary, to which NaN and infinity are no numbers."""
    from jsonschema import Draft202012Validator, validators

    types = Draft202012Validator.TYPE_CHECKER.redefine_many(
        {
            "array": lambda _, it: isinstance(it, (list, tuple)),
            "number": lambda _, it: isinstance(it, (int, float)) and not isinstance(it, bool) and abs(it) < math.inf,
        }
    )
    return validators.extend(Draft202012Validator, type_checker=types)(json_schema())


def read_summary(path: Path) -> Dict[str, Any]:
    """Read a summary.json of the version that this program knows. Raises Unreadable."""
    return _read(path, lambda _: True)


def _read(path: Path, accepts: Callable[[Dict[str, Any]], bool]) -> Dict[str, Any]:
    """Return a stored summary if `accepts` is true for its seal, {} without one. Raises Unreadable."""
    try:
        text = read_text(path)
        line = _LINE.search(text)
        seal: Dict[str, Any] = json.loads(f"{{{line[0][:-2]}}}")[_SEAL] if line else {}
        if not accepts(seal):
            raise Unreadable(f"{path}: its seal has no signature of this user, this machine and this program")
        sums = _seal_of(_without(text, line), path.parent) if line else {}
        data = json.loads(text)
        del text  # 65 MB of three days, which checking does not need
        version = data["version"]
        is_sealed = data.pop(_SEAL, None) is not None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as e:
        raise Unreadable(f"{path}: no summary can be read: {e}") from e
    if version != VERSION:
        raise Unreadable(f"{path}: version {version!r} of the format; this program reads version {VERSION}")
    if is_sealed and {key: seal.get(key) for key in _SUMS} != sums:
        raise Unreadable(f"{path}: it, or a file that it was made from, changed since")
    if not is_sealed and os.path.lexists(path.parent / SUMS):
        raise Unreadable(f"{path}: made by another program than the files of its run")
    try:
        check(data)
    except ValueError as e:
        raise Unreadable(f"{path}: {e}") from e
    except ImportError as e:
        raise Unreadable(f"{path}: missing Python package {e.name}: pip install 'cbt-plugins[report]'") from e
    return data


def _without(text: str, line: re.Match[str]) -> Iterator[str]:
    """Yield a text in pieces, without a line."""
    for begin, end in ((0, line.start()), (line.end(), len(text))):
        for at in range(begin, end, _PIECE):
            yield text[at : min(at + _PIECE, end)]


def signed_summary(run: Path, holds: Callable[[Any, Mapping[str, Any]], bool]) -> Optional[Dict[str, Any]]:
    """Return the stored summary of a run that has ended, if it says all that a new one would say; else None.

    No file of the run has changed since, and `holds` accepts the signature for the sums that the summary is bound to.
    """
    summary, _ = _stored(run, lambda seal: holds(seal.get(_SIGNATURE), {key: seal.get(key) for key in _SUMS}))
    is_same_run = summary is not None and summary["run"]["name"] == name_of(run.resolve())  # folders can be renamed
    return summary if is_same_run else None


def has_sums_of_all(summary: Mapping[str, Any], run: Path) -> bool:
    """Return whether `check_sums` reads all files that the numbers of a summary are from: it reads no rows."""
    if any(warning["code"] in _OF_ROWS for warning in summary["warnings"]):
        return False
    try:
        jobs = [job for path in run.glob("phases/*/phase.json") for job in read_json(path).get("jobs") or ()]
        return all(job.get("aggregates") for job in jobs)
    except (OSError, ValueError, TypeError, AttributeError):
        return False


def is_current(summary: Mapping[str, Any], run: Path) -> bool:
    """Return whether a stored summary says all that the run's directory has: no phase ended since, nor the run."""
    finished = {path.parent.name for path in run.glob("phases/*/phase.json")}
    if not finished:
        return True  # without its phases there is nothing to make another from
    summary_phases = {f"{phase['index']:02d}-{phase['name']}" for phase in summary["phases"]}
    ended: bool = summary["run"]["complete"] == (run / "complete").exists()
    failure = summary["failure"]
    counted = failure is None or "episodes" in failure["impact"]
    return ended and finished <= summary_phases and "resources" in summary and counted


def summary_of(path: Path) -> Dict[str, Any]:
    """Return the summary of a run directory, or of a summary.json itself; nothing is written.

    Raises Unreadable, also where one would have to be made and this Python has no numpy.
    """
    if path.is_file():
        return read_summary(path)
    stored, why = _stored(path)
    if stored is not None:
        return stored
    try:
        return summarize(path)
    except ImportError as e:
        hint = f"`cbt-tools report {path}` makes one, with pip install 'cbt-plugins[report]'"
        raise Unreadable(f"{why}; none can be made here without the Python package {e.name}: {hint}") from e


def is_stored(path: Path) -> bool:
    """Tell whether a run directory has the summary that `summary_of` returns, so that no file of rows is read."""
    return _stored(path)[0] is not None


def _stored(
    path: Path, accepts: Callable[[Dict[str, Any]], bool] = lambda _: True
) -> Tuple[Optional[Dict[str, Any]], str]:
    """Return the stored summary of a run with such a seal, or None and the reason why another one is to be made."""
    try:
        changed = check_sums(path).changed
        stored = _read(path / FILE, accepts)
    except Unreadable as e:
        return None, str(e)
    if not changed and is_current(stored, path):
        return stored, ""
    return None, f"{path / FILE} was made before the run had ended, or a file has changed since"


def summarize(path: Path, names: Optional[Collection[str]] = None) -> Dict[str, Any]:
    """Return the summary of a run directory, or of these phases, made now and checked. Raises Unreadable; ImportError.
    """
    from cbt_plugins.results.summary_numbers import numbers_of  # needs numpy

    with reading(path):
        summary = {"version": VERSION, **numbers_of(path, names=names)}
        check(summary)
    return summary


def write_summary(
    summary: Mapping[str, Any], path: Path, sign: Optional[Callable[[Mapping[str, Any]], Optional[str]]] = None
) -> None:
    """Write a summary completely or not at all; the same summary gives the same bytes, if `sign` does so.

    Beside SHA256SUMS it is bound to that, and to what it says itself; `sign` may return a signature for both sums.
    """
    pieces = _pieces(summary, "")
    blocks = [next(pieces), *blocks_of(chain(pieces, "\n"))]
    if os.path.lexists(path.parent / SUMS):
        seal = _seal_of(blocks, path.parent)
        signature = sign(seal) if sign else None
        seal.update({_SIGNATURE: signature} if signature else {})
        blocks.insert(1, f" \"{_SEAL}\": {json.dumps(seal)},\n")  # after the bracket and its line feed
    write_whole(path, blocks)


def _seal_of(pieces: Iterable[str], run: Path) -> Dict[str, str]:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece.encode())
    return {"files": sum_of_sums(run), "summary": digest.hexdigest()}


_PLAIN = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
#: types of values that are no plain ones
_DEEP = {dict, list, tuple}


def dumps(value: Any, end: str = "") -> str:
    """Return JSON with one line for each list of plain values, and then `end`: a series is one line."""
    return "".join(chain(_pieces(value, ""), [end]))


def _pieces(value: Any, indent: str) -> Iterator[str]:
    """Yield the parts of `dumps`, each of a line at most: a summary of three days has 50 MB."""
    deeper, comma = indent + " ", ""
    if isinstance(value, dict) and value:
        yield "{\n"
        for key, item in value.items():
            name = f"{comma}{deeper}{json.dumps(key)}: "
            if isinstance(item, (dict, list, tuple)):
                yield name
                yield from _pieces(item, deeper)
            else:
                yield name + _plain(item)
            comma = ",\n"
        yield f"\n{indent}}}"
    elif isinstance(value, (list, tuple)) and not _DEEP.isdisjoint(map(type, value)):
        yield "[\n"
        for item in value:
            yield comma + deeper
            yield from _pieces(item, deeper)
            comma = ",\n"
        yield f"\n{indent}]"
    else:
        yield _plain(value)


def _plain(value: Any) -> str:
    """Return the JSON of a value, or of a list of plain values; an encoder for each number would take most of the time.
    """
    if type(value) is int or (type(value) is float and math.isfinite(value)):
        return repr(value)
    return _PLAIN.encode(value)


def loads(summary: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """Return the phases that made requests, without the calibration."""
    return [phase for phase in summary["phases"] if phase["ops"] and not is_calibration(phase["name"], phase["role"])]


def measured(summary: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """Return the phases that measure; of a run that has none, all that made requests."""
    loaded = loads(summary)
    return [phase for phase in loaded if is_measurement(phase["name"], phase["role"])] or loaded


def load_begin(summary: Mapping[str, Any]) -> Optional[float]:
    """Return the begin of the first phase that has a window (run's clock, epoch seconds); None when none has."""
    return next((phase["window"]["start"] for phase in summary["phases"] if phase["window"]["seconds"]), None)


#: what the halves of a run are called that has aged the cluster between them
AGES = ("new", "aged")


def halves(summary: Mapping[str, Any]) -> Tuple[str, str]:
    """Return the names of the first and the last measurement of a run: "new" and "aged", or those of the phases."""
    first, last = summary["new_vs_aged"]["new"], summary["new_vs_aged"]["aged"]
    phases = [(phase["name"], phase["role"]) for phase in summary["phases"]]
    names = [name for name, _ in phases]
    aged = has_aged(phases[names.index(first) : names.index(last) + 1])
    return AGES if aged else (first, last)


def ops_of(phase: Mapping[str, Any]) -> Iterator[str]:
    """Yield the operations of a phase, and TOTAL where there are several."""
    yield from phase["ops"]
    if len(phase["ops"]) > 1:
        yield TOTAL


def is_ours(run: Path) -> bool:
    """Return whether a run directory is one of these plug-ins; CBT's own benchmarks leave such directories, too.

    One that this user may not read may be one.
    """
    try:
        return (run / "plan.json").exists() or (run / "phases").is_dir()
    except PermissionError:
        return True
