"""The scores of Apache Otava and of PELT (ruptures); runs in the environment of inputs/programs.py."""

import json
import sys

import numpy as np
import ruptures
from detector_scores import scores
from otava.analysis import compute_change_points


def otava(values):
    """The cuts with Otava's own defaults: window 50, p 0.001."""
    points, _ = compute_change_points(values)
    return [int(point.index) for point in points]


def pelt(values):
    """The cuts of PELT with squares, the penalty 3 log n, and segments of 3 points at least, of scaled values."""
    signal = np.asarray(values, float)
    scale = signal.std()
    if len(signal) < 6 or not scale:
        return []
    found = ruptures.KernelCPD(kernel="linear", min_size=3).fit(((signal - signal.mean()) / scale).reshape(-1, 1))
    return [int(cut) for cut in found.predict(pen=3 * np.log(len(signal)))[:-1]]


question = json.load(sys.stdin)
json.dump({name: scores(method, question) for name, method in (("Otava", otava), ("PELT", pelt))}, sys.stdout)
