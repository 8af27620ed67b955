"""Plays cbt-load on a client of the stand-in cluster: rows at a steady pace, and the buckets have what they say."""

import datetime
import json
import os
import signal
import sys
import time

import standin

#: seconds from one round of the operations to the next
PACE = 0.05


class Load:
    """One run: a round is one request of each operation."""

    def __init__(self, folder, spec):
        self.folder, self.spec = folder, spec
        self.buckets = {space["name"]: space["bucket"] for space in spec["spaces"]}
        self.change = {name: [0, 0] for name in self.buckets}  # made, removed
        self.number = 0
        self.stopped = False

    def stop(self, *_):
        self.stopped = True

    def round(self):
        """The requests' effect first: what a killed generator has done and not told is the rule."""
        rows = []
        with self.folder as world:
            objects = world.state["buckets"]
            for op in self.spec["ops"]:
                name = op["spaces"][0]
                bucket = self.buckets[name]
                objects.setdefault(bucket, 0)
                if op["op"] == "DELETE" and not objects[bucket]:
                    continue
                if op["op"] in ("PUT", "DELETE"):
                    objects[bucket] += 1 if op["op"] == "PUT" else -1
                    self.change[name][op["op"] == "DELETE"] += 1
                rows.append(op["op"])
        for op in rows:
            self.say(op)

    def say(self, op):
        end = datetime.datetime.now(datetime.timezone.utc)
        begin = end - datetime.timedelta(milliseconds=5)
        times = [t.strftime("%Y-%m-%dT%H:%M:%S.%f") + "000Z" for t in (begin, end)]
        size = 4096 if op in ("PUT", "GET") else 0
        cells = [self.number, 0, op, "", 1, size, self.spec["hosts"][0], f"cbt-load/{self.number}", "", times[0]]
        cells += [times[0] if op == "GET" else "", times[1], 5000000, 0]
        print(*cells, sep="\t", flush=True)
        self.number += 1

    @property
    def full(self):
        return self.spec.get("objects") and self.change[self.spec["spaces"][0]["name"]][0] >= self.spec["objects"]

    def run(self, go):
        tell(event="ready", live=0, seconds=0.0)
        begin = None
        while begin is None and not self.stopped:
            time.sleep(0.02)
            begin = instant(go)
        if begin is not None:
            time.sleep(max(0.0, begin - time.time()))
            end = begin + self.spec["duration"] if self.spec.get("duration") else float("inf")
            while time.time() < end and not self.full and not self.stopped:
                self.round()
                time.sleep(PACE)
        with open(self.spec["state_out"], "w") as file:
            json.dump(self.change, file)
        spaces = [
            {"name": name, "bucket": self.buckets[name], "created": made, "removed": removed, "unknown": 0}
            for name, (made, removed) in self.change.items()
        ]
        tell(event="end", reason="signal" if self.stopped else "duration", spaces=spaces, issued={}, dry={})


def instant(path):
    """What the file holds, once it is there and written."""
    try:
        with open(path) as file:
            return float(file.read())
    except (OSError, ValueError):
        return None


def tell(**event):
    print(json.dumps(event), file=sys.stderr, flush=True)


def main():
    folder, words = standin.Folder(os.environ["STANDIN"]), sys.argv[1:]
    if standin.accident(folder, "cbt-load", words) == "fail":
        return 1
    if words[0] != "run":
        print("cbt-load stand-in")
        return 0
    with open(words[1]) as file:
        load = Load(folder, json.load(file))
    signal.signal(signal.SIGTERM, load.stop)
    load.run(words[words.index("--go") + 1])
    return 0
