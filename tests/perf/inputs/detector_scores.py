"""How well change points are found: by the definitions of TCPD's paper, and of steps that are planted in real series.

van den Burg and Williams, "An Evaluation of Change Point Detection Algorithms" (arXiv 2003.06222); for planted steps
Fleming, Kolaczkowski et al., "Hunter" (ICPE 2023). Standard library only: other_detectors.py runs it elsewhere.
"""

import json
import math
from pathlib import Path

#: points between a change and what is taken for it
MARGIN = 5
#: runs of the new level after which a planted step counts as missed
PATIENCE = 30
#: looks begin with so many runs
FIRST = 6
STEPS = (0.01, 0.02, 0.03, 0.05, 0.1)
#: no benchmark series: the annotators' training
_CONTROLS = "quality_control"


def tcpd(folder):
    """Return name -> (values, annotator -> change points) of the series of one dimension in a checkout of TCPD."""
    found = {}
    for name, annotations in json.loads((Path(folder) / "annotations.json").read_text()).items():
        file = Path(folder) / "datasets" / name / f"{name}.json"
        if file.exists() and not name.startswith(_CONTROLS):
            data = json.loads(file.read_text())
            if data["n_dim"] == 1:
                found[name] = [math.nan if v is None else float(v) for v in data["series"][0]["raw"]], annotations
    return found


def _hits(truth, cuts):
    left, hits = set(cuts), set()
    for point in sorted(truth):
        near = min((abs(point - cut), cut) for cut in left) if left else (math.inf, 0)
        if near[0] <= MARGIN:
            hits.add(point)
            left.remove(near[1])
    return hits


def f1(annotations, cuts):
    """Return the F1 of cuts: precision by all annotators together, recall as the mean over them."""
    truths, cuts = [{0, *points} for points in annotations.values()], {0, *cuts}
    precision = len(_hits(set().union(*truths), cuts)) / len(cuts)
    recall = sum(len(_hits(truth, cuts)) / len(truth) for truth in truths) / len(truths)
    return 2 * precision * recall / (precision + recall)


def covering(annotations, cuts, n):
    """Return the covering of the annotators' segments by those of the cuts, as the mean over the annotators."""
    segments = _segments(cuts, n)
    sums = [sum((b - a) * max(_overlap(a, b, *its) for its in segments) for a, b in _segments(points, n))
            for points in annotations.values()]
    return sum(sums) / n / len(annotations)


def _segments(cuts, n):
    edges = [0, *sorted(cut for cut in set(cuts) if 0 < cut < n), n]
    return list(zip(edges, edges[1:]))


def _overlap(a, b, c, d):
    return max(0, min(b, d) - max(a, c)) / (max(b, d) - min(a, c))


def of_tcpd(method, folder):
    """Return {"f1", "covering", "series"} of a method: values -> cuts."""
    scores = []
    for values, annotations in tcpd(folder).values():
        places = [i for i, value in enumerate(values) if not math.isnan(value)]
        cuts = [places[cut] for cut in method([values[i] for i in places])]
        scores.append((f1(annotations, cuts), covering(annotations, cuts, len(values))))
    means = [sum(column) / len(scores) for column in zip(*scores)]
    return {"f1": means[0], "covering": means[1], "series": len(scores)}


def of_planted(method, series, every):
    """Return step -> the delay of each planted step, in runs of the new level; None: missed.

    Of all positions of all series that have PATIENCE runs after them, one in `every` gets a step of each size: with
    fewer runs, a miss would not be seen, and a hit would. A step counts as found at the first look that has a cut
    within MARGIN of it which the series without it has not.
    """
    positions = [(values, at) for values in series for at in range(FIRST, len(values) - PATIENCE + 1)]
    delays = {str(step): [] for step in STEPS}
    for values, at in positions[every // 2 :: every]:
        ends = range(at + 1, at + PATIENCE + 1)
        without = {n: _near(method(values[:n]), at) for n in ends}
        for step in STEPS:
            stepped = [*values[:at], *(value * (1 - step) for value in values[at:])]
            delay = next((n - at for n in ends if _near(method(stepped[:n]), at) > without[n]), None)
            delays[str(step)].append(delay)
    return delays


def _near(cuts, at):
    return any(abs(cut - at) <= MARGIN for cut in cuts)


def alarms(method, series):
    """Return [new, looks]: the changes that no earlier look had, and the looks, one after each run of each series."""
    looks = new = 0
    for values in series:
        known = []
        for n in range(FIRST, len(values) + 1):
            looks += 1
            fresh = [cut for cut in method(values[:n]) if not _near(known, cut)]
            new += len(fresh)
            known += fresh
    return [new, looks]


def scores(method, question):
    """Return all scores of a method.

    question: {"tcpd": folder or null, "planted", "planted_in_tcpd", "shuffled": series, "every", "every_of_tcpd"}.
    """
    return {
        "tcpd": of_tcpd(method, question["tcpd"]) if question["tcpd"] else None,
        "planted": of_planted(method, question["planted"], question["every"]),
        "planted_in_tcpd": of_planted(method, question["planted_in_tcpd"], question["every_of_tcpd"]),
        "alarms": alarms(method, question["planted"]),
        "shuffled": alarms(method, question["shuffled"]),
    }


def t_test(values, least=12, most=24, after=12, threshold=7.0):
    """Return the cuts of Perfherder: where the t of 12 to 24 runs before and 12 after is highest and at least 7."""
    marks = []
    for at in range(least, len(values) - after + 1):
        before, behind = values[max(0, at - most) : at], values[at : at + after]
        marks.append((_t(before, behind), at))
    cuts = []
    for i, (t, at) in enumerate(marks):
        around = [its[0] for its in marks[max(0, i - after + 1) : i + after]]
        if t >= threshold and t == max(around) and not (cuts and at - cuts[-1] < after):
            cuts.append(at)
    return cuts


def _t(before, behind):
    means = [sum(part) / len(part) for part in (before, behind)]
    squares = [sum((value - mean) ** 2 for value in part) for part, mean in zip((before, behind), means)]
    pooled = sum(squares) / (len(before) + len(behind) - 2)
    error = math.sqrt(pooled * (1 / len(before) + 1 / len(behind)))
    return abs(means[1] - means[0]) / error if error else (math.inf if means[0] != means[1] else 0.0)
