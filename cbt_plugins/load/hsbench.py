"""hsbench 0.1: one process per driver and phase, in the modes p, l, g and d (github.com/markhpc/hsbench).

Facts that shape the command lines, by its source (defdeb6):
- a process has one endpoint, one size, one mode at a time; object i is in bucket i mod their number, both names end
  with 12 digits, and a process that did not write the objects has to be told how many there are (-n).
- the keys may come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY: they are in no argument.
- PUTs are signed, their payload never; addresses have the bucket in their path; certificates are always verified.
- a thread ends after its third failed request; a LIST that fails is not counted; results are written at the end only.
- `-d` and `-n` are all that ends it: whoever stops it does not learn what its last second did.
- modes c, x: the run makes its buckets and removes them; i: the first driver does, before the load of a fill begins.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Tuple

from cbt_plugins.config.key_errors import FieldError
from cbt_plugins.load.generator import FOLDER, Generator, LoadJob, LoadStart, generator_of
from cbt_plugins.plan import Driver, Phase, Plan

#: what runs on the client; standard library only
AGENT = Path(__file__).with_name("hsbench_agent.py")
#: seconds for requests under way, and for hsbench to sort all latencies of a long phase
GRACE = 120.0
#: objects of hsbench are numbered with so many digits, and so are its buckets
_DIGITS = 12
_MODES = {"fill": ("p", "PUT"), "delete": ("d", "DELETE"), "GET": ("g", "GET"), "LIST": ("l", "LIST")}
_ONCE = "r(1,N)"


class HsbenchJobs(Generator):
    """hsbench: the modes of a mesh as phases."""

    program = "hsbench"
    # without a mode it says who it is and ends; no key is used
    version = "-m '' -a none -s none -u none 2>&1 | grep -o 'Hotsauce.*'"
    remedy = "build github.com/markhpc/hsbench and put it on the PATH of this machine: the run copies it to the clients"
    state = ".hsbench"
    begins_at_go = True
    kinds = ("fill", "hybrid", "delete")
    ops = ("get", "list")
    known_keys = ("keys",)
    across = True
    puts_whole = True
    sends_tokens = False

    @classmethod
    def payload(cls, plan: Plan, versions: Mapping[str, Any]) -> str:
        """Return "unsigned": hsbench signs no payload."""
        return "unsigned"

    @classmethod
    def bucket_keys(cls, stem: str, number: int) -> List[str]:
        return [f"{stem}-{i:0{_DIGITS}d}" for i in range(number)]

    @classmethod
    def refused(cls, plan: Plan) -> Iterator[FieldError]:
        s3 = plan.s3
        if any(generator_of(phase.engine) is not cls for phase in plan.phases if phase.kind != "wait"):
            text = "hsbench finds only objects that hsbench wrote: all phases with load need engine: hsbench"
            yield FieldError(("engine",), text)
        size = plan.buckets[0].sizes
        if len(size) != 1 or size[0][0] != size[0][1]:
            yield FieldError(("size",), "hsbench writes objects of one exact size")
        keys = [bucket.key for bucket in plan.buckets]
        if keys != cls.bucket_keys(keys[0].rpartition("-")[0], len(keys)):
            yield FieldError(("buckets",), "hsbench names the buckets itself: give their number")
        elif any(len(driver.buckets) < len(plan.buckets) for driver in plan.drivers):
            yield FieldError(("across_buckets",), "each hsbench works on all buckets: say across_buckets: true")
        for phase in plan.phases:
            objects = phase.goal.objects if phase.goal else None
            if objects is not None and objects * len(plan.buckets) < len(plan.drivers):
                text = f"{objects * len(plan.buckets)} objects for {len(plan.drivers)} drivers: each hsbench needs one"
                yield FieldError(("phases", phase.name, "objects"), text)
        if len(s3.urls) > 1 and s3.host_select != "one":
            yield FieldError(("s3", "host_select"), "each hsbench has one endpoint: say host_select: one")
        for key, wrong in (("lookup", s3.lookup != "path"), ("verify_tls", not s3.verify_tls),
                           ("session_token", bool(s3.session_token_source))):  # fmt: skip
            if wrong:
                text = "hsbench cannot do that: it uses lookup: path, verifies certificates and has no token"
                yield FieldError(("s3", key), text)
        for key in ("keep_rows", "generator_ceiling"):
            if getattr(plan, key):
                yield FieldError((key,), "hsbench reports no single requests, and finds only objects that it wrote")
        has_objects = False
        for phase in plan.phases:
            *keys, wrong_ = _wrong(phase, has_objects) or ("",)
            if wrong_:
                yield FieldError(("phases", phase.name, *keys), wrong_, of_key=True)
            has_objects = phase.kind == "fill" or (has_objects and phase.kind != "delete")

    def jobs(self, phase: Phase, start: LoadStart) -> List[LoadJob]:
        """Return a job per driver."""
        return [self._job(phase, start, number, driver) for number, driver in enumerate(self._plan.drivers)]

    def _job(self, phase: Phase, start: LoadStart, number: int, driver: Driver) -> LoadJob:
        mode, op = _MODES[next(iter(phase.mix or {}), "") if phase.kind == "hybrid" else phase.kind]
        buckets = len(driver.buckets)
        # more threads than buckets have nothing to list, and end: then hsbench says nothing of intervals
        threads = min(driver.workers, buckets) if mode == "l" else driver.workers
        spec = self._orders(phase, start, number, driver)
        spec.update(mode=mode, op=op, id=f"{driver.id}-{phase.name}", threads=threads, buckets=buckets)
        spec["json"] = f"{FOLDER}/state/{spec['id']}.json"
        spec["options"] += ["-t", str(threads)]
        seconds = phase.goal.duration if phase.goal else phase.duration
        ends = math.ceil(seconds) if seconds and mode in "pg" else -1
        spec["limits"] = ["-d", str(ends), "-n", str(-1 if spec["objects"] is None else spec["objects"])]
        if mode == "l":  # it ends with the last bucket; -n is not looked at
            spec["limits"] = ["-n", "1", "-d", "-1"]
        return LoadJob(
            id=spec["id"],
            driver=driver.id,
            node=driver.node,
            op=op,
            role="fill" if phase.kind == "fill" else "hsbench",
            bucket=self._names[driver.bucket],
            prefix=f"hsbench/{driver.id}/",
            sizes=self._buckets[driver.bucket].sizes,
            workers=threads,
            urls=self.urls_of(driver),
            argv=("python3", f"{FOLDER}/spec/{spec['id']}.py", f"{FOLDER}/spec/{spec['id']}.json", "{hsbench}"),
            start="self",
            grace=GRACE,
            spec=spec,
            script=AGENT,
        )

    def _orders(self, phase: Phase, start: LoadStart, number: int, driver: Driver) -> Dict[str, Any]:
        url, size = self.urls_of(driver)[0], self._buckets[driver.bucket].sizes[0][0]
        prefix = self._names[driver.bucket][:-_DIGITS]
        options = ["-u", url, "-r", self._plan.s3.region, "-bp", prefix, "-b", str(len(driver.buckets))]
        options += ["-op", f"hsbench/{driver.id}/", "-z", f"{size}B"]
        return {
            "endpoint": url,
            "size": size,
            "bucket_prefix": prefix,
            "options": options,
            "objects": self._objects(phase, start, number, driver),
            "init": phase.kind == "fill" and number == 0,
            "stale": start.memory.stale and bool(start.memory.states),
            "go": f"{FOLDER}/go",
            "state": f"{FOLDER}/state/{driver.id}{self.state}",
        }

    def _objects(self, phase: Phase, start: LoadStart, number: int, driver: Driver) -> Any:
        """Return the number of its own objects that a driver writes, reads or deletes; None: until the time is over."""
        if phase.goal is not None:
            if phase.goal.objects is None:
                return None
            quotient, remainder = divmod(phase.goal.objects * len(driver.buckets), len(self._plan.drivers))
            return quotient + (number < remainder)
        if phase.mix and "LIST" in phase.mix:
            return None
        state = start.memory.states.get(driver.id)
        return json.loads(state.read_text())["objects"] if state else 0


def _wrong(phase: Phase, has_objects: bool) -> Tuple[str, ...]:
    """Return the first feature of a phase that hsbench lacks: the keys below the phase, and the text; () without one.

    `has_objects`: an earlier phase has written objects, and none has deleted them.
    """
    ops = list(phase.mix or ())
    if phase.kind not in (*HsbenchJobs.kinds, "wait"):
        return (f"hsbench has no {phase.kind}: it puts (fill), lists, gets (hybrid) and deletes",)
    if phase.kind == "fill":
        if phase.goal and (phase.goal.max_avail or phase.goal.raw):
            return ("hsbench cannot be stopped without losing count of what it wrote: give objects or duration",)
        return ("hsbench would write the same names again: delete before another fill",) if has_objects else ()
    if phase.kind == "hybrid":
        if ops not in (["GET"], ["LIST"]):
            return "mix", "hsbench does one thing at a time: {get: 100} or {list: 100}"
        if phase.rate or phase.rate_share or phase.ladder:
            return ("hsbench has no open loop and no ladder",)
        if ops == ["GET"] and [keys.select for keys in phase.keys.values()] != [_ONCE]:
            return (f"hsbench reads each object once, in the order of writing: set keys: {{get: '{_ONCE}'}}",)
    return ()
