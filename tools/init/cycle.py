"""A cycle for a cluster: it takes about an hour and never writes more than the free space."""

from __future__ import annotations

from typing import Iterator

from cbt_plugins.benchmarks.by_size import SETS
from cbt_plugins.config.units import format_duration, format_percent

from .discovery import Discovery
from .entry import Entry

#: highest write rate of a device, by class, in bytes/s: above most devices, so that a fill cannot exceed the space.
#: Ceph gives the class ssd to NVMe devices too: every class but hdd may be one.
_FASTEST = {"hdd": 250e6}
_FASTEST_OF_OTHERS = 4e9
#: share of MAX AVAIL that the fill takes at most, and its longest and shortest duration in seconds
_FILL, _LONGEST, _SHORTEST = 0.2, 900.0, 300.0
#: seconds of each of the two measurements, and of the aging
_MEASURE, _AGE = 600.0, 1200.0
#: net share of requests that add an object under the mix of the studies: 35 % put, 5 % delete
_GROWS = 0.30
#: highest share of MAX AVAIL for the cycle with this mix at the highest rate; the mix that adds no object
_MOST, _EVEN = 0.6, {"get": 45, "put": 20, "stat": 15, "delete": 20}
#: requests in flight for each OSD; bounds of the workers of a driver
_PER_OSD, _FEWEST, _MANY = 4, 8, 64


def entries_of_cycle(cluster: Discovery, clients: int) -> Iterator[Entry]:
    """Yield the keys of `rgwtest:` for a cluster and a number of clients."""
    sizes, devices = len(SETS["small"]), cluster.devices
    yield Entry("objects", {"set": "small"}, "one bucket for each object size: 1, 4, 8, 64 and 256 KiB")
    drivers = max(1, -(-clients // sizes))
    if drivers > 1:
        yield Entry("drivers_per_size", drivers, f"so that all {clients} clients have a driver")
    workers = min(_MANY, max(_FEWEST, -(-_PER_OSD * len(devices) // (sizes * drivers))))
    requests = workers * sizes * drivers
    yield Entry("workers", workers, f"requests in flight of each driver; in total: {requests}, for {len(devices)} OSDs")
    speed = sum(_FASTEST.get(device, _FASTEST_OF_OTHERS) for device in devices) * cluster.usable
    seconds = min(_LONGEST, _FILL * cluster.available / speed if speed else 0.0)
    share = format_percent(_FILL)
    if seconds >= _SHORTEST:
        comment = f"fills less than {share} of MAX AVAIL, even at the full speed of the devices"
        yield Entry("fill", {"duration": format_duration(seconds // 60 * 60)}, comment)
    else:
        yield Entry("fill", {"max_avail": share}, "a share, not a time: fast devices could write it in minutes")
    if speed * (seconds + _GROWS * (2 * _MEASURE + _AGE)) > _MOST * cluster.available:
        comment = "as many deletes as puts, so that the data does not grow; the studies use put 35, delete 5"
        yield Entry("mix", _EVEN, comment)
    comment = "each of the two measurements: after the fill, and after the aging"
    yield Entry("measure", {"duration": format_duration(_MEASURE)}, comment)
    yield Entry("age", {"duration": format_duration(_AGE)})
