"""What ClickHouse's embedded build says to queries; runs in the environment of inputs/programs.py."""

import json
import sys
import time

import chdb

answers = []
for query in json.load(sys.stdin):
    begun = time.perf_counter()
    rows = json.loads(chdb.query(query, "JSONCompact").bytes() or b'{"data": []}')["data"]
    answers.append([rows, time.perf_counter() - begun])
json.dump({"version": chdb.__version__, "answers": answers}, sys.stdout)
