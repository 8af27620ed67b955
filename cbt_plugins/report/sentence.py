"""The result of a run, of repeated runs or of a comparison in words: the first sentence of a page.

It says no more than the statistics of a comparison do (docs/STATISTICS.md): one run a side is inconclusive, however
clearly its seconds differ, because nobody knows how much two measurements differ by themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple

from cbt_plugins.compare.sides import Side, are_same
from cbt_plugins.compare.statistics.verdicts import Verdict
from cbt_plugins.compare.table import KEY, Compared, Row, Rules, compare
from cbt_plugins.formatting import in_percent, plain, seconds, several, short_percent, success
from cbt_plugins.metrics import METRICS, TOTAL, MetricSource, from_source
from cbt_plugins.plan import split_op
from cbt_plugins.results.recovery import upgrade
from cbt_plugins.results.recovery.episodes import HURT, is_planned
from cbt_plugins.results.recovery.milestones import UNCHANGED, titled
from cbt_plugins.results.run_record import RunRecord, of_failure, of_phase, result_warnings
from cbt_plugins.results.run_state import run_state
from cbt_plugins.results.summary_file import AGES, halves, measured
from cbt_plugins.s3_operations import OPERATIONS
from cbt_plugins.warning_kinds import KINDS

#: the phase that both halves of a run have in their comparison
AGING = "aging"
#: seconds from which on a state has a throughput that is worth a sentence
_LONG_ENOUGH = 10.0


@dataclass(frozen=True)
class Sentence:
    """One result: a sentence, what it rests on, and its kind: a verdict, "invalid", or "" where nothing is judged."""

    text: str
    kind: str = ""
    more: str = ""


def first(sentences: List[Sentence], most: int = 5) -> List[Sentence]:
    """Return the sentences for the top of a page, whose tables have all."""
    closing = Sentence(f"{several(len(sentences) - most, 'more result')}: see the tables.")
    return [*sentences[:most], *([closing] if len(sentences) > most else [])]


def of_run(summary: Mapping[str, Any], config: Mapping[str, Any]) -> List[Sentence]:
    """Return the results of one run: its failures, else its ladders, else what aging did, else its numbers."""
    state = run_state(summary)
    if state == "going on":
        ended = several(len(summary["phases"]), "phase")
        return [Sentence(f"This run has not finished: {ended} so far. Its numbers are not final.", "warning")]
    if not summary["usable"]:
        return [Sentence(f"This run is {state}: do not use its numbers.", "invalid")]
    scorecard = summary.get("scorecard")
    sentences = list(_scorecard(scorecard)) if scorecard else []
    if summary["failure"] and not sentences:
        sentences = list(_failures(summary["failure"]))
    for run_upgrade in summary.get("upgrades") or ():
        failed = (run_upgrade["total"] or {"total": {"errors": 0}})["total"]["errors"]
        sentences.append(
            Sentence(upgrade.sentence(run_upgrade), "" if run_upgrade["complete"] and not failed else "warning")
        )
    sentences = sentences or [
        Sentence(f"{ladder['name']}: {ladder['text']}.") for ladder in summary.get("ladders") or ()
    ]
    sentences = sentences or ([] if summary["failure"] else of_aging([(config, summary)]))
    return sentences or [_numbers(phase) for phase in measured(summary)[:1]]


def _half(config: Mapping[str, Any], summary: Mapping[str, Any], name: str) -> RunRecord:
    """Return one measurement of a run as a record of its own."""
    phase = next(line for line in summary["phases"] if line["name"] == name)
    warnings = (warning for warning in result_warnings(summary) if warning.phase in (None, name))
    return RunRecord(
        source=f"{summary['run']['name']}/{name}",
        name=summary["run"]["name"],
        kind="cbt-plugins",
        config=config,
        measurements=tuple(replace(measurement, phase=AGING) for measurement in of_phase(summary, phase)),
        usable=summary["usable"],
        warnings=tuple(replace(warning, phase=AGING if warning.phase else None) for warning in warnings),
    )


def of_aging(runs: Sequence[Tuple[Mapping[str, Any], Mapping[str, Any]]]) -> List[Sentence]:
    """Return the change from the first to the last measurement of runs (configuration, summary).

    It is a sentence for each configuration, which says "aged" where the run has aged the cluster. Repeated runs are
    compared in pairs.
    """
    pairs_by_names: Dict[Tuple[str, str], List[Tuple[RunRecord, RunRecord]]] = {}
    for config, summary in runs:
        if summary["usable"] and summary["new_vs_aged"]:
            first_half, last_half = (_half(config, summary, summary["new_vs_aged"][key]) for key in AGES)
            pairs_by_names.setdefault(halves(summary), []).append((first_half, last_half))
    return [sentence for names, pairs in pairs_by_names.items() for sentence in _of_halves(names, pairs)]


def _of_halves(names: Tuple[str, str], pairs: Sequence[Tuple[RunRecord, RunRecord]]) -> Iterator[Sentence]:
    """Yield the sentences on runs whose first and last measurements have these names."""
    base, contender = (Side(name, records) for name, records in zip(names, zip(*pairs)))
    for section in compare(base, [contender], rules=Rules(paired=True)).sections:
        rows = _leading([row for row in section.rows if row.comparison.key])
        if rows:
            noun = _noun(rows[0])
            words = (f"{noun} of phase {names[1]}", f"{noun} of phase {names[0]}")
            sentence = _sentence(rows, (f"aged {noun}", f"new {noun}") if names == AGES else words, "this run")
            yield _placed(sentence, section.case)


def of_comparison(compared: Compared) -> List[Sentence]:
    """Return the results of a comparison: a sentence for each contender, configuration and phase, the worst first."""
    sentences = []
    for section in compared.sections:
        if are_same(section.base, section.new):
            text = f"{section.contender} and {compared.base.name} are the same runs: nothing can differ."
            sentences.append(_placed(Sentence(text, "warning", "The verdicts below say nothing."), section.case))
            continue
        phases: Dict[str, List[Row]] = {}
        for row in section.rows:
            if row.comparison.key:
                phases.setdefault(row.phase, []).append(row)
        for phase, rows in phases.items():
            lead = _leading(rows)
            if lead:
                noun = _noun(lead[0])
                names = f"{noun} of {section.contender}", f"{noun} of {compared.base.name}"
                where = ", ".join(filter(None, (section.case, phase if len(phases) > 1 else "")))
                sentences.append(_placed(_sentence(lead, names, "these runs"), where))
    verdicts = (Verdict.WORSE, Verdict.BETTER, Verdict.EQUIVALENT, Verdict.INCONCLUSIVE)
    order = ["warning", *(verdict.value for verdict in verdicts)]
    return sorted(sentences, key=lambda sentence: order.index(sentence.kind))


def _leading(rows: Sequence[Row]) -> List[Row]:
    """Return the rows of a phase that are said, the throughput first, unless something else set it; p99 next."""
    by_metric = {row.metric: row for row in reversed(rows)}
    throughput = by_metric.get("obj_per_s")
    if throughput and throughput.comparison.capped_by and len(by_metric) > 1:
        del by_metric["obj_per_s"]
    ladders = (metric.key for metric in from_source(MetricSource.LADDER))
    return [by_metric[key] for key in (*KEY, "recovery_s", *ladders) if key in by_metric]


def _noun(row: Row) -> str:
    if row.metric == "recovery_s":
        return "recoveries"
    if METRICS[row.metric].source is MetricSource.LADDER:
        return "ladders"
    op = split_op(row.op)[1]
    return OPERATIONS[op].noun if op in OPERATIONS else "operations"


def _placed(sentence: Sentence, where: str) -> Sentence:
    return replace(sentence, text=f"{where}: {sentence.text}" if where else _capital(sentence.text))


def _sentence(rows: Sequence[Row], names: Tuple[str, str], here: str) -> Sentence:
    """Return the sentence on the first row, and the verdicts of the others behind it."""
    row, comparison = rows[0], rows[0].comparison
    new, base = names
    singular = row.metric not in _WORDS
    if singular:
        new, base = (f"the {METRICS[row.metric].title} of {name}" for name in names)
    if row.verdict is Verdict.INCONCLUSIVE:
        return _inconclusive(row, new, base, here)
    if row.verdict is Verdict.EQUIVALENT and comparison.differs:
        way = f"{_way(row, base)} ({_interval(row)}), within {short_percent(comparison.margin or 0.0)}"
    elif row.verdict is Verdict.EQUIVALENT:
        way = f"as {_words(row)[2]} as {base} within {short_percent(comparison.margin or 0.0)}"
    else:
        way = f"{_way(row, base)} ({_interval(row)})"
    text = "; ".join([f"{new} {'is' if singular else 'are'} {way}", *map(_clause, rows[1:])])
    verdicts = [row.verdict for row in rows]
    worst = next((verdict for verdict in (Verdict.WORSE, Verdict.BETTER) if verdict in verdicts), row.verdict)
    noun = "repetitions" if row.way == "repetitions" else "runs"
    runs = f"{row.runs[0]} runs, in pairs" if row.way == "pairs" else f"{row.runs[0]} and {row.runs[1]} {noun}"
    inner = {row.comparison.deciding_confidence for row in rows if row.comparison.differs}
    inner -= {comparison.deciding_confidence}
    levels = " and ".join(short_percent(level) for level in (comparison.deciding_confidence, *sorted(inner)))
    return Sentence(f"{text}.", worst.value, f"Intervals of {levels}, from {runs}.")


def _inconclusive(row: Row, new: str, base: str, here: str) -> Sentence:
    comparison = row.comparison
    why = comparison.forbidden_by or comparison.capped_by
    text, advice = f"{new} compared with {base}: inconclusive", "More runs, or longer runs, are needed."
    if comparison.change is not None and why and why.code == "one-run":
        were = "were" if row.metric in _WORDS else "was"
        text = f"{new} {were} {_way(row, base)} in {here}; one run is inconclusive"
        advice = "How much repeated runs differ is not known: repeat the run."
        if comparison.change_low is not None:
            advice = f"By the seconds of {here}: {_interval(row, way=True)}. {advice}"
    elif comparison.change_low is not None:
        text = f"{text}, from {_interval(row, way=True)}"
        if (comparison.change_low or 0.0) * (comparison.change_high or 0.0) > 0 and comparison.adjusted is not None:
            advice = f"p is {comparison.adjusted:.3f} (adjusted for the number of key rows). {advice}"
    if why and why.code != "one-run":
        advice = f"No verdict: {KINDS[why.code].text} ({why.code})."
    return Sentence(f"{text}.", Verdict.INCONCLUSIVE.value, advice)


def _clause(row: Row) -> str:
    title = METRICS[row.metric].title
    if row.verdict is Verdict.EQUIVALENT and row.comparison.differs:
        return f"{title} is {_way(row)} ({_interval(row)}), within {short_percent(row.comparison.margin or 0.0)}"
    if row.verdict is Verdict.EQUIVALENT:
        return f"{title} is equivalent within {short_percent(row.comparison.margin or 0.0)}"
    if row.verdict is Verdict.INCONCLUSIVE:
        return f"{title} is inconclusive"
    return f"{title} is {_way(row)} ({_interval(row)})"


#: metric -> what more of it is called, what less, and how two are that do not differ
_WORDS = {"obj_per_s": ("faster", "slower", "fast"), "recovery_s": ("slower", "faster", "fast")}


def _words(row: Row) -> Tuple[str, str, str]:
    return _WORDS.get(row.metric, ("higher", "lower", "high"))


def _way(row: Row, base: str = "") -> str:
    """Return the change: "12 % slower than new reads"."""
    change = row.comparison.change or 0.0
    if not float(in_percent(change)):
        return f"as {_words(row)[2]} as {base or 'before'}"
    return f"{short_percent(abs(change))} {_words(row)[change < 0]}{f' than {base}' if base else ''}"


def _interval(row: Row, way: bool = False) -> str:
    """Return the interval of the change: "8 to 16 %", with its way "8 to 16 % slower", "8 % slower to 2 % faster"."""
    low, high = (end or 0.0 for end in row.comparison.deciding)
    more_word, less_word, _ = _words(row)
    if low * high > 0:
        near, far = sorted((abs(low), abs(high)))
        direction = f" {more_word if low > 0 else less_word}" if way else ""
        return f"{short_percent(near).removesuffix(' %')} to {short_percent(far)}{direction}"
    return f"{short_percent(-low)} {less_word} to {short_percent(high)} {more_word}"


def _scorecard(scorecard: Mapping[str, Any]) -> Iterator[Sentence]:
    """Yield the number of failures of a scorecard, and those that cost clients most."""
    values = {
        line["name"]: {(m.op, m.metric): m.value for m in of_failure(line)}
        for line in scorecard["failures"]
        if line["scores"]
    }
    refused = len(scorecard["failures"]) - len(values)
    text = f"{several(len(values), 'failure')} measured" + (f", {refused} refused" if refused else "")
    shares = {name: numbers.get((TOTAL, "availability")) for name, numbers in values.items()}
    losses = {name: share for name, share in shares.items() if share is not None}
    if losses:
        worst = min(losses, key=lambda name: (losses[name], -(values[name].get((TOTAL, "bad_s")) or 0.0)))
        bad = values[worst].get((TOTAL, "bad_s"))
        text += f"; clients lost most by {worst}: availability {success(losses[worst])}"
        text += "" if bad is None else f", {several(round(bad), 'bad second')}"
    yield Sentence(f"{text}.")


def _failures(failure: Mapping[str, Any]) -> Iterator[Sentence]:
    """Yield the effects of each fault and each undo, and their cost for the clients."""
    for episode in failure["milestones"]["episodes"]:
        if not is_planned(episode):
            continue
        milestone_of_name = {milestone["name"]: milestone for milestone in episode["milestones"]}
        clean, peak = (milestone_of_name.get(name) or {} for name in ("clean", "degraded-peak"))
        recovered = clean.get("seconds") is not None
        seen = (milestone_of_name.get("in-effect") or {}).get("seconds")
        # of a failure only with its effect: nothing has changed where there was none, too
        unchanged = episode["outcome"] == UNCHANGED and (episode["kind"] == "return" or seen is not None)
        osds = f" ({several(len(episode['osds']), 'OSD')})" if episode.get("osds") else ""
        after = f"all PGs were active+clean after {seconds(clean['seconds'])}" if recovered else episode["outcome"]
        if unchanged:
            after = f"{'' if seen is None else f'in effect after {seconds(seen)}, '}all PGs stayed active+clean"
        elif not recovered and episode.get("end_why"):
            after += f" in {seconds(episode['end'] - episode['begin'])}, until {episode['end_why']}"
        parts = [f"{titled(episode)}{osds}: {after}"]
        if peak.get("value") and peak["value"]["total"]:
            degraded = peak["value"]["objects"] / peak["value"]["total"]
            parts.append(f"up to {short_percent(degraded)} of the object copies were degraded")
        yield Sentence(_capital("; ".join(parts)) + ".", "" if recovered or unchanged else "warning")
    lines = [state for phase in failure["impact"]["phases"] for state in phase["states"]]
    hurt = [line for line in lines if line["state"] in HURT]
    if hurt:
        yield _impact(hurt, failure["impact"])


def _impact(states: Sequence[Mapping[str, Any]], impact: Mapping[str, Any]) -> Sentence:
    long = [state for state in states if state["seconds"] >= _LONG_ENOUGH]
    shares = {state["total"]["obj_per_s_percent"]: state["state"] for state in long}
    ends = [share for share in (min, max) if shares and None not in shares]
    failed = sum(state["total"]["errors"] for state in states)
    gaps = [phase.get("failure_gap") for phase in impact["phases"]]  # archives before this key have none
    gap = max([state["total"]["longest_gap"] for state in states] + [gap for gap in gaps if gap is not None])
    # shares of another load are no effect of the failure alone
    is_comparable = not any(warning["code"] == "other-load" for warning in impact.get("warnings") or ())
    shares_text = " to ".join(dict.fromkeys(f"{end(shares):.0f} % ({shares[end(shares)]})" for end in ends))
    parts = [f"clients had {shares_text} of the throughput without a failure"] if shares_text and is_comparable else []
    worst = impact.get("worst")
    if worst and is_comparable:
        start = next(phase["start"] for phase in impact["phases"] if phase["phase"] == worst["phase"])
        when = f"from second {worst['start'] - start:.0f} of {worst['phase']} on ({worst['state']})"
        least = f"down to {worst['lowest']:,.0f} of {impact['baseline']['total']['obj_per_s']:,.0f} obj/s"
        share = f"{worst['percent']:.0f} % of the throughput without a failure"
        parts.insert(0, f"at worst clients had {share}, {least}, for {worst['seconds']} s {when}")
    bad = [state["total"].get("bad_seconds") for state in states]
    if None not in bad:
        parts.append(f"{several(sum(bad), 'second')} {'was' if sum(bad) == 1 else 'were'} bad")
    parts.append(f"{several(failed, 'request') if failed else 'no request'} failed")
    parts.append(f"the longest time without a success was {seconds(gap)}")
    loaded = seconds(sum(state["seconds"] for state in states))
    return Sentence(f"Until all PGs were active+clean again, in {loaded} with load: {'; '.join(parts)}.")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _numbers(phase: Mapping[str, Any]) -> Sentence:
    """Return the numbers of a measurement."""
    total = phase["total"]
    times = total["latency_ms"] or {}
    parts = [f"{plain(total['obj_per_s'])} obj/s"]
    if total["mib_per_s"] is not None:
        parts.append(f"{plain(total['mib_per_s'])} MiB/s")
    parts += [f"{name} {plain(times[name])} ms" for name in ("p50", "p99") if times.get(name) is not None]
    failed = several(total["errors"], "request") if total["errors"] else "no request"
    cut = f", {several(total['cut'], 'request')} had no answer when the run ended" if total["cut"] else ""
    return Sentence(f"{phase['name']}: {', '.join(parts)}; {failed} failed{cut}.")
