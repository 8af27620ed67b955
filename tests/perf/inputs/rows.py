"""Writes rows as warp does, for benchmarks: 5500 a second, four operations, five hosts, one in ten thousand failed.

Usage: python inputs/rows.py OUT.csv.zst ROWS. Some 300,000 rows a second: numpy makes matrices of characters.
"""

from __future__ import annotations

import subprocess
import sys
from typing import List

import numpy as np

COLUMNS = "idx\tthread\top\tclient_id\tn_objects\tbytes\tendpoint\tfile\terror\tstart\tfirst_byte"
COLUMNS += "\tend\tduration_ns\tcat\n"

CHUNK = 200_000
RATE = 5500
NS = 10**9
DAY = "2023-11-14T"
OPS = ["GET", "STAT", "PUT", "DELETE"]
SHARES = [0.45, 0.30, 0.15, 0.10]
MILLISECONDS = [9.0, 1.5, 28.0, 6.0]
ERROR = '"Put ""http://rgw1:7480/b/x"": dial tcp: connect: connection refused"'
LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ1234567890()", np.uint8)


def texts(choices: List[str], which: np.ndarray) -> np.ndarray:
    """One of some texts in each row; zeros fill up, and are left out when the rows are written."""
    width = max(map(len, choices))
    table = np.frombuffer(b"".join(text.encode().ljust(width, b"\0") for text in choices), np.uint8)
    return table.reshape(len(choices), width)[which]


def digits(values: np.ndarray, width: int) -> np.ndarray:
    """Decimal numbers of a fixed width."""
    made = np.empty((len(values), width), np.uint8)
    for place in reversed(range(width)):
        values, digit = np.divmod(values, 10)
        made[:, place] = digit + 48
    return made


def numbers(values: np.ndarray, width: int) -> np.ndarray:
    """Decimal numbers without zeros in front."""
    made = digits(values, width)
    made[:, :-1][np.logical_and.accumulate(made[:, :-1] == 48, axis=1)] = 0
    return made


def times(values: np.ndarray) -> np.ndarray:
    """RFC 3339, of ns of one day, as Go prints it: without zeros at the end of the fraction."""
    second, fraction = np.divmod(values, NS)
    part = digits(fraction, 9)
    part[np.logical_and.accumulate(part[:, ::-1] == 48, axis=1)[:, ::-1]] = 0
    colon = np.full((len(values), 1), ord(":"), np.uint8)
    day = texts([DAY], np.zeros(len(values), np.int64))
    clock = [digits(second // 3600, 2), colon, digits(second // 60 % 60, 2), colon, digits(second % 60, 2)]
    return np.hstack([day, *clock, texts(["."], np.zeros(len(values), np.int64)), part, texts(["Z"], 0 * second)])


def rows(chance: np.random.Generator, first: int, count: int, begin: np.ndarray, names: np.ndarray) -> bytes:
    """Rows that begin at these times (ns of the day)."""
    nothing = np.zeros(count, np.int64)
    op = chance.choice(4, count, p=SHARES)
    host = chance.integers(0, 5, count)
    took = (chance.lognormal(0, 0.7, count) * np.array(MILLISECONDS)[op] * 1e6).astype(np.int64)
    failed = (chance.random(count) < 1e-4).astype(np.int64)
    answer = times(begin + (took * chance.uniform(0.6, 0.95, count)).astype(np.int64))
    answer[(op != 0) | (failed > 0)] = 0
    fields = [
        numbers(np.arange(first, first + count), 9),
        numbers(chance.integers(0, 160, count), 3),
        texts(OPS, op),
        texts(["bFPM", "rjTV", "Qk3x", "w8Lm", "Tz0v"], chance.integers(0, 5, count)),
        texts(["1"], nothing),
        texts(["65536", "0"], op % 2),
        texts([f"http://192.168.10.{11 + i}:8080" for i in range(5)], host),
        names[chance.integers(0, len(names), count)],
        texts(["", ERROR], failed),
        times(begin),
        answer,
        times(begin + took),
        numbers(took, 11),
        texts(["0"], nothing),
    ]
    parts: List[np.ndarray] = []
    for field in fields:
        parts += [field, texts(["\t"], nothing)]
    parts[-1] = texts(["\n"], nothing)
    flat = np.hstack(parts).ravel()
    return flat[flat != 0].tobytes()


def main() -> int:
    """Write the file."""
    path, count = sys.argv[1], int(sys.argv[2])
    chance = np.random.default_rng(1)
    ids = np.arange(200_000)
    prefixes = LETTERS[chance.integers(0, len(LETTERS), (160, 8))]
    ends = LETTERS[chance.integers(0, len(LETTERS), (len(ids), 16))]
    slash, dot, end = (texts([text], 0 * ids) for text in ("/", ".", ".rnd"))
    names = np.hstack([prefixes[ids % 160], slash, numbers(ids, 6), dot, ends, end])
    with subprocess.Popen(["zstd", "-q", "-f", "-T2", "-o", path], stdin=subprocess.PIPE) as zstd:
        assert zstd.stdin
        zstd.stdin.write(COLUMNS.encode())
        clock = 3600 * NS
        for first in range(0, count, CHUNK):
            n = min(CHUNK, count - first)
            begin = clock + np.cumsum(chance.exponential(NS / RATE, n).astype(np.int64))
            clock = int(begin[-1])
            zstd.stdin.write(rows(chance, first, n, begin, names))
        zstd.stdin.write(b"# warp mixed --concurrent=32 --full\n")
        zstd.stdin.close()
    return zstd.returncode


if __name__ == "__main__":
    sys.exit(main())
