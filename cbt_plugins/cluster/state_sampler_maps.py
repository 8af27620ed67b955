"""Which OSDs are up and in, by the OSD maps of a cluster: a part of the sampler's agent.

Standard library only, Python 3.6.
"""

# mypy: disallow-untyped-defs=False

import calendar
import re
import time

from cbt_plugins.cluster.state_sampler_sources import NoReply

#: maps between two samples that are looked at one by one, and the seconds of a sample for that: those that are left are
#: read with the next one. A map of 10,000 OSDs has 7 MB.
MAPS, MAPS_SECONDS = 1000, 1.0
#: what a monitor says of a map that it has no longer, or not yet; it keeps some 500
NO_MAP = "there is no map for epoch"


def epoch_seconds(stamp):
    """Return the seconds of 2026-11-21T13:56:05.650577+0000 (older releases: a space for the T, no zone)."""
    match = re.match(r"(\d+-\d+-\d+)[T ](\d+:\d+:\d+)(\.\d+)?(?:([+-])(\d\d):?(\d\d))?", stamp)
    seconds = calendar.timegm(time.strptime(" ".join(match.group(1, 2)), "%Y-%m-%d %H:%M:%S"))
    off = int(match.group(5) or 0) * 3600 + int(match.group(6) or 0) * 60
    return seconds + float(match.group(3) or 0) - (-off if match.group(4) == "-" else off)


class Osds:
    """Which OSDs are up and in, map by map."""

    def __init__(self, epoch):
        self.epoch = epoch  # of the last sample
        self.reported_epoch = epoch  # up to this map all changes were returned
        self._seen = None  # what the status of the last sample said of OSDs that are up and in
        self.up = self.inside = None
        self.ids = []
        self.since = {}  # OSD that is up -> epoch since which it is
        self._stamp = 0.0  # epoch seconds of the newest map that was read, by the monitors' clock
        self._changes = []  # changes that no sample has told yet
        self.missed = None  # what no map tells any more, as text
        self.behind = False  # there are newer maps, which are read with the next sample

    def follow(self, osdmap, ask):
        """Return the changes up to this map, each {"epoch", "t", "down", "up", "out", "in"}; `ask` asks a monitor."""
        epoch = osdmap["epoch"]
        keys = ("num_osds", "num_up_osds", "num_in_osds", "osd_up_since", "osd_in_since")
        # before Octopus the status does not say since when: each map may have changes
        seen = [osdmap.get(key) for key in keys] + ([] if "osd_up_since" in osdmap else [epoch])
        # these times are whole seconds: a change in the second of the last map that was read does not show in them
        newest = max(osdmap.get(key) or 0 for key in ("osd_up_since", "osd_in_since"))
        if seen != self._seen or (epoch > self.epoch and newest >= int(self._stamp)):
            first = epoch if self.epoch is None else min(max(self.epoch + 1, epoch - MAPS), epoch)
            if self.up is None and self.epoch is not None:
                self._read(self.epoch, epoch, ask)
            if self.epoch is not None and first > self.epoch + 1:
                self._read(first - 1, epoch, ask)  # what it has changed came at times that nobody knows
                self.missed = "OSD maps %d to %d were not read" % (self.epoch + 1, first - 1)
            until = time.monotonic() + MAPS_SECONDS
            for number in range(first, epoch + 1):
                change = self._read(number, epoch, ask)
                self._changes += [change] if change else []
                self.epoch = number
                if number < epoch and time.monotonic() >= until:
                    seen = None
                    break
        self._seen, self.behind = seen, seen is None
        self.epoch = self.epoch if self.behind else epoch
        changes, self._changes = self._changes, []
        self.reported_epoch = self.epoch
        return changes

    def unreported(self, epoch):
        """Return how many maps up to this one may have changes that were not returned yet."""
        return (epoch or 0) - (self.reported_epoch or 0)

    def _read(self, number, newest, ask):
        """Return the changes of a map, None without any; a map that is trimmed is left out."""
        try:
            return self._take(ask({"prefix": "osd dump", "epoch": number}))
        except NoReply as error:
            if NO_MAP not in str(error) or number == newest:
                raise
        self.missed = "OSD maps up to %d are trimmed" % number
        return None

    def _take(self, dump):
        up = {o["osd"] for o in dump["osds"] if o["up"]}
        inside = {o["osd"] for o in dump["osds"] if o["in"]}
        before = (self.up, self.inside)
        self.up, self.inside = up, inside
        self.ids = sorted(o["osd"] for o in dump["osds"])
        self._stamp = epoch_seconds(dump["modified"])
        self.since = {o["osd"]: o["up_from"] for o in dump["osds"] if o["up"]}
        if before[0] is None or before == (up, inside):
            return None
        change = {"epoch": dump["epoch"], "t": round(self._stamp, 3)}
        moved = {"down": before[0] - up, "up": up - before[0], "out": before[1] - inside, "in": inside - before[1]}
        change.update((name, sorted(ids)) for name, ids in moved.items() if ids)
        return change
