"""How many objects fit, how large they are in the mean, what they take on the disks, and how a mix changes that.

Sizes are bytes. Occupancy is about a range of K keys that PUTs and DELETEs hit without looking, as COSBench does: each
request writes with probability w and deletes with probability d, any key as likely as any other; a PUT of a key that is
there changes nothing, and so does a DELETE of one that is not.
"""

from __future__ import annotations

import math
import re
from typing import List, Mapping, Sequence, Tuple

from cbt_plugins.models.pools import Redundancy
from cbt_plugins.s3_operations import WRITES

#: (smallest, largest, weight): an exact size where both are equal, else any between them; weights may sum to anything
Sizes = Sequence[Tuple[int, int, float]]

#: mon_osd_full_ratio: above it the cluster takes no writes, so MAX AVAIL does not count it
FULL = 0.95
#: RGW cuts objects into RADOS objects of this size (rgw_max_chunk_size, rgw_obj_stripe_size)
RGW_STRIPE = 4 << 20
#: bluestore_min_alloc_size since Pacific; 64 KiB on HDDs before
MIN_ALLOC = 4 << 10
#: osd_pool_erasure_code_stripe_unit: a chunk is made of so many bytes of each stripe
STRIPE_UNIT = 4 << 10

_DAY = 86_400
_HISTOGRAM = re.compile(r"h\(([0-9|,\s]+)\)\s*([KMG]?B)")
_COSBENCH = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}


def max_avail(raw: float, pool: Redundancy, full: float = FULL) -> float:
    """Return the bytes that clients can write into an empty cluster: raw x k/(k+m) x full ratio, as MAX AVAIL is."""
    return raw * pool.usable * full


def used_share(stored: float, available: float) -> float:
    """Return the share 0..1 that `ceph df` shows as %USED of a pool: stored / (stored + MAX AVAIL)."""
    return stored / (stored + available)


def mean_size(sizes: Sizes) -> float:
    """Return the mean bytes of an object; a range counts with its middle."""
    return sum((low + high) / 2 * weight for low, high, weight in sizes) / _total(sizes)


def objects_per_bucket(capacity: float, fill: float, mean: float, buckets: int = 1) -> int:
    """Return the objects per bucket that fill this share of the capacity: capacity x fill / mean / buckets, cut off."""
    return int(capacity * fill / mean / buckets)


def as_cosbench_draws(sizes: Sizes) -> List[Tuple[int, int, float]]:
    """Return the sizes with the weights that COSBench really uses: the first gets 1 more, the last 1 less.

    It draws a whole number from 0 to total - 1, and takes the first size whose cumulated weight is not *less* than
    that; 0 ... w1 are w1 + 1 numbers. Weights 50, 15, 15, 15, 5 become 51, 15, 15, 15, 4.
    """
    weights = [weight for _, _, weight in sizes]
    if any(weight != int(weight) or weight < 0 for weight in weights):
        raise ValueError("weights of COSBench must be whole numbers")
    drawn = list(weights)
    some = [i for i, weight in enumerate(weights) if weight]
    if some and some[-1] > 0:
        drawn[0] += 1
        drawn[some[-1]] -= 1
    return [(low, high, weight) for (low, high, _), weight in zip(sizes, drawn)]


def parse_cosbench(text: str) -> List[Tuple[int, int, float]]:
    """Return the sizes of "h(1|1|50,64|64|15)KB"; COSBench's KB is 1000 bytes. ValueError says what is wrong."""
    match = _HISTOGRAM.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a histogram of COSBench: write h(1|1|50,64|128|50)KB")
    sizes = []
    for part in match.group(1).split(","):
        numbers = part.split("|")
        if len(numbers) != 3 or not all(number.strip().isdigit() for number in numbers):
            raise ValueError(f"{part!r}: a class of a histogram is smallest|largest|weight")
        low, high, weight = (int(number) for number in numbers)
        if low > high:
            raise ValueError(f"{part}: the smallest comes first")
        unit = _COSBENCH[match.group(2)]
        sizes.append((low * unit, high * unit, float(weight)))
    _total(sizes)
    return sizes


def raw_bytes(
    size: int, pool: Redundancy, min_alloc: int = MIN_ALLOC, unit: int = STRIPE_UNIT, stripe: int = RGW_STRIPE
) -> int:
    """Return the bytes that one object of RGW takes on all disks together, without metadata.

    Each RADOS object is cut into k chunks, which are filled up to whole stripe units (erasure codes only; RGW makes
    RADOS objects of whole stripes there); each of the k + m chunks takes whole allocation units. 1000 bytes on EC 4+2
    take 6 x 4 KiB.
    """
    width = pool.k * unit
    if pool.k > 1:
        stripe = max(width, stripe - stripe % width)
    full_stripes, last_bytes = divmod(size, stripe)
    return full_stripes * _raw_part(stripe, pool, min_alloc, unit) + _raw_part(last_bytes, pool, min_alloc, unit)


def _raw_part(size: int, pool: Redundancy, min_alloc: int, unit: int) -> int:
    chunk = size if pool.k == 1 else -(-size // (pool.k * unit)) * unit
    return pool.size * -(-chunk // min_alloc) * min_alloc


def raw_mean(sizes: Sizes, pool: Redundancy, min_alloc: int = MIN_ALLOC, unit: int = STRIPE_UNIT) -> float:
    """Return the mean bytes of an object on all disks; of a range, of 1024 sizes that are evenly spread over it."""
    total = 0.0
    for low, high, weight in sizes:
        steps = min(1024, high - low + 1)
        spread = [low + (high - low) * (2 * i + 1) // (2 * steps) for i in range(steps)]
        total += weight * sum(raw_bytes(size, pool, min_alloc, unit) for size in spread) / steps
    return total / _total(sizes)


def per_second(per_day: float) -> float:
    """Return the requests/s of so many a day."""
    return per_day / _DAY


def per_day(per_second: float) -> float:
    """Return the requests a day of so many a second."""
    return per_second * _DAY


def _total(sizes: Sizes) -> float:
    total = sum(weight for _, _, weight in sizes)
    if total <= 0:
        raise ValueError("there are no sizes with a weight above 0")
    return total


def steady_occupancy(write: float, delete: float) -> float:
    """Return the share of the keys (0..1) that exist in the long run: w / (w + d), whatever it was before.

    `write` and `delete` in any unit: percent of the requests, requests/s.
    """
    if write < 0 or delete < 0 or not write + delete:
        raise ValueError("something must be written or deleted")
    return write / (write + delete)


def occupancy(start: float, keys: float, writes: float, deletes: float) -> float:
    """Return the expected share of the keys (0..1) that exist after so many PUTs and DELETEs, mixed evenly.

    o(n) = o* + (o(0) - o*) (1 - 1/K)^n with n = writes + deletes; other requests do not count.
    """
    n = writes + deletes
    if not n:
        return start
    if keys < 1:
        raise ValueError("a range needs at least 1 key")
    end = steady_occupancy(writes, deletes)
    left = (1 - 1 / keys) ** n if keys > 1 else 0.0
    return end + (start - end) * left


def requests_until(start: float, goal: float, keys: float, write: float, delete: float) -> float:
    """Return the PUTs and DELETEs together until the occupancy is `goal`; inf when it never is.

    `write` and `delete` in any unit, as for steady_occupancy.
    """
    end = steady_occupancy(write, delete)
    if start == goal:
        return 0.0
    if start == end or not 0 < (goal - end) / (start - end) < 1:
        return math.inf
    if keys <= 1:
        return 1.0
    return math.log((goal - end) / (start - end)) / math.log(1 - 1 / keys)


def growth(mix: Mapping[str, float]) -> float:
    """Return the objects that 100 requests add if each PUT makes a new one and each DELETE removes an existing one."""
    return sum(mix.get(op, 0.0) for op in WRITES) - mix.get("DELETE", 0.0)
