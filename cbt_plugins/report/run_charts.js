// The charts of one run
const phases = data.phases;
// A phase without a window has no place in the charts of the run
const timed = phases.filter((p) => p.window.end > p.window.start);
const begin = Math.min(...timed.map((p) => p.start));
const first = Math.min(0, ...timed.flatMap((p) => p.pgs.t.slice(0, 1).map((t) => t + p.start - begin)));
const last = Math.max(0, ...timed.map((p) => p.window.end - begin), ...timed.flatMap((p) => p.pgs.t.slice(-1).map((t) => t + p.start - begin)));

// Times between the windows in which nothing was loaded: an idle hour is drawn as short as a fiftieth of the load
const idle = [];
{
  const windows = timed.map((p) => [p.window.start - begin, p.window.end - begin]).sort((a, b) => a[0] - b[0]);
  const short = windows.reduce((sum, [a, b]) => sum + b - a, 0) / 50;
  let end = Infinity;
  for (const [a, b] of windows) {
    if (a - end > short) idle.push({ from: end, to: a, cut: a - end - short });
    end = end === Infinity ? b : Math.max(end, b);
  }
}
// From seconds of the run to places on its axis, and back
const squeeze = (t) => idle.reduce((x, g) => x - Math.min(1, Math.max(0, (t - g.from) / (g.to - g.from))) * g.cut, t);
const stretch = (x) => {
  let gone = 0;
  for (const g of idle) {
    const left = x + gone - g.from, kept = g.to - g.from - g.cut;
    if (left <= 0) break;
    gone += left < kept ? left * g.cut / kept : g.cut;
  }
  return x + gone;
};
const runAxis = () => ({ ...timeAxis(), values: (u, at) => at.map((x) => clock(stretch(x))),
  splits: (u, i, low, high, step) => {
    const marks = [];
    for (let t = Math.ceil(stretch(low) / step) * step; t <= stretch(high); t += step) {
      const x = squeeze(t), hidden = idle.some((g) => t > g.from && t < g.to);
      if (!hidden && !(x - marks[marks.length - 1] < 0.7 * step)) marks.push(x);
    }
    return marks;
  } });

// The window of every phase: shaded, with its name; with its number where a name has no room
const shade = (u) => {
  if (!u.root.isConnected) return; // a live page has replaced it
  const { ctx, bbox } = u, ratio = devicePixelRatio || 1;
  ctx.save();
  ctx.font = 11 * ratio + "px " + font;
  ctx.textAlign = "center";
  const clip = (v) => Math.min(Math.max(v, bbox.left), bbox.left + bbox.width);
  const at = (t) => clip(u.valToPos(squeeze(t - begin), "x", true));
  const seen = phases.map((p, i) => ({ p, i, left: at(p.window.start), right: at(p.window.end) })).filter((shaded) => shaded.right - shaded.left >= 1);
  const room = ({ p, left, right }) => ctx.measureText(p.name).width + 8 * ratio < right - left;
  const names = seen.every(room), list = u.root.parentNode.nextElementSibling;
  if (list && list.classList.contains("names")) list.hidden = names;
  for (const { p, i, left, right } of seen) {
    ctx.fillStyle = colour("band");
    ctx.fillRect(left, bbox.top, right - left, bbox.height);
    broken(u, p.failure, (t) => squeeze(t - begin), [], data.newer?.length > 0);
    ctx.fillStyle = colour("soft");
    ctx.fillText(names ? p.name : i + 1, (left + right) / 2, bbox.top - 6 * ratio);
  }
  broken(u, null, (t) => squeeze(t - begin), data.newer);
  for (const g of idle) {
    const x = u.valToPos(squeeze((g.from + g.to) / 2), "x", true);
    if (x > bbox.left && x < bbox.left + bbox.width) ctx.fillText("//", x, bbox.top + bbox.height - 3 * ratio);
  }
  ctx.restore();
};

// What was broken: shaded states and a line at every milestone; `place` leads from a time to the chart's axis.
// `newer`: marks of a live page, later than the data of the chart; where there are some, other names leave them room
const broken = (u, failure, place, newer = [], leaveRoom = newer.length > 0) => {
  if (!failure && !newer.length) return;
  const { start, windows, bad, marks: own } = failure || { start: 0, windows: [], bad: [], marks: [] };
  const { ctx, bbox } = u, right = bbox.left + bbox.width;
  const spot = (t) => Math.min(Math.max(u.valToPos(place(t), "x", true), bbox.left), right);
  const at = (seconds) => spot(start + seconds);
  ctx.save();
  for (const w of windows) {
    if (["no failure", "returned", "clean without them", "clean again"].includes(w.state)) continue;
    ctx.fillStyle = tint(colour(["failing", "in effect", "no effect", "degraded", "failed"].includes(w.state) ? "bad" : "warning"), "1c");
    ctx.fillRect(at(w.from), bbox.top, at(w.to) - at(w.from), bbox.height);
  }
  // bad seconds: a strip at the bottom
  ctx.fillStyle = colour("bad");
  const strip = 4 * devicePixelRatio;
  for (const [from, to] of bad) ctx.fillRect(at(from), bbox.top + bbox.height - strip, at(to) - at(from), strip);
  ctx.strokeStyle = tint(colour("bad"), "88");
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([2 * devicePixelRatio, 3 * devicePixelRatio]);
  const marks = [...own.map(({ at: seconds, title }) => ({ t: start + seconds, title })), ...newer]
    .filter(({ t }) => within(u)(place(t)));
  for (const { t } of marks) {
    ctx.beginPath();
    ctx.moveTo(spot(t), bbox.top);
    ctx.lineTo(spot(t), bbox.top + bbox.height);
    ctx.stroke();
  }
  // the names of the lines, upright at their right, as far as they do not cover each other; of a line at the right end,
  // at its left; low charts have no room
  const high = 10 * devicePixelRatio;
  ctx.font = high + "px " + font;
  ctx.fillStyle = colour("soft");
  ctx.textAlign = "right";
  let free = -Infinity;
  const end = leaveRoom ? right - high - 5 * devicePixelRatio : right;
  for (const mark of bbox.height < 130 * devicePixelRatio ? [] : marks) {
    const x = spot(mark.t), beside = x > right - high ? x - 2 * devicePixelRatio : x + high;
    if (!newer.includes(mark) && (beside - high < free || beside > end)) continue;
    free = Math.max(x, beside) + 3 * devicePixelRatio;
    ctx.save();
    ctx.translate(beside, bbox.top + 4 * devicePixelRatio);
    ctx.rotate(-Math.PI / 2);
    ctx.fillText(mark.title, 0, 0);
    ctx.restore();
  }
  ctx.restore();
};

const onPhase = (makeChart) => (place) => makeChart(phases[place.dataset.phase]);
const xs = (p, zero) => {
  const any = Object.values(p.ops)[0];
  return any ? any.rate.map((_, i) => p.start - zero + (i + 0.5) * p.step) : [];
};
// Failed requests per second, on the axis of the rates
const errors = (p) => xs(p, 0).map((_, i) => Object.values(p.ops).reduce((sum, numbers) => sum + numbers.errors[i], 0) / p.step);
// A chart of one phase: its failure shaded, its cursor and its zoom those of the other charts of the phase
const ofPhase = (p, values, series, y, overrides) => {
  const shadeFailure = (u) => broken(u, p.failure, (t) => t - p.start, phases[data.newerIn] === p ? data.newer : []);
  return { data: values, options: overTime(series, y, { hooks: { drawClear: [shadeFailure] }, cursor: together(p.name), ...overrides }) };
};
// A chart of the run: all of them have the same first and last time, so that they stand over each other
const ofRun = ([times, ...values], series, y) => ({
  data: [[first, ...times, last].map(squeeze), ...values.map((v) => [null, ...v, null])],
  options: overTime([{ ...time, value: (u, v) => v == null ? "" : clock(stretch(v)) }, ...series], y,
    { padding: [18, 24, 0, 0], axes: [runAxis(), valueAxis()], hooks: { drawClear: [shade] }, cursor: together("run") }),
});
// From 0 to the highest value of what is seen; a calibration is seen only as far as that, unless nothing else is
const calmRange = () => {
  const tops = timed.filter((p) => !p.calibration).map((p) =>
    [squeeze(p.window.start - begin), squeeze(p.window.end - begin), Math.max(0, ...Object.values(p.ops).flatMap((numbers) => numbers.high || numbers.rate))]);
  return { range: (u, low, high) => {
    const { min, max } = u.scales.x, seen = tops.filter(([from, to]) => min == null || (to > min && from < max)).map((top) => top[2]);
    return [0, (Math.min(high || 0, Math.max(0, ...seen) || Infinity) || 1) * 1.06];
  } };
};
// Lines of names that not every phase has, with a hole after every phase
const joined = (names, timesOf, valuesOf) => {
  const all = [[], ...names.map(() => [])];
  for (const p of timed) {
    const own = timesOf(p);
    if (!own.length) continue;
    all[0].push(...own, own[own.length - 1] + 1e-3);
    names.forEach((name, i) => all[i + 1].push(...(valuesOf(p, name) || own.map(() => null)), null));
  }
  return all;
};
const pgLine = () => line("PGs not clean", colour("warning"), { fill: tint(colour("warning"), "33"), paths: uPlot.paths.stepped({ align: 1 }) });
const stack = (label, key) => line(label, colour(key), { fill: tint(colour(key), "22") });
const clusterTimes = (p, name, zero) => p.failure ? p.failure[name].map((_, i) => p.failure.start - zero + (i + 0.5) * p.failure.step) : [];
// The cluster, on the time axis of the client
const ofCluster = (p, lines) => {
  const f = p.failure;
  return ofPhase(p, [clusterTimes(p, lines[0][0], p.start), ...lines.map(([name]) => f ? f[name] : [])],
    [time, ...lines.map(([name, key, label]) => stack(label || name, key))], fromZero());
};
// What the generators said of themselves while they ran: a line for each driver, or for all together; their sum has the
// axis at the right
const inFlight = (p, name) => {
  const own = p.under_way, lines = Object.entries(own[name]);
  const times = lines.length ? lines[0][1].map((_, i) => own.start - p.start + (i + 0.5) * own.step) : [];
  const right = own.worst && own[name].sum && {
    scales: { x: { time: false }, y: fromZero(), sum: fromZero() },
    axes: [timeAxis(), valueAxis(), valueAxis({ scale: "sum", side: 1, grid: { show: false }, space: 25 })],
  };
  // the highest values of several seconds need not be of one moment
  const sum = own.step > 1 ? "sum, at most (right axis)" : "sum (right axis)";
  return ofPhase(p, [times, ...lines.map(([, values]) => values)],
    [time, ...lines.map(([name], i) => right && name === "sum" ? line(sum, palette(i), { scale: "sum" }) : line(name, palette(i), {}))],
    fromZero(), right || {});
};
// The processors: a line for each class of daemons, the same colour everywhere
const classes = ["osd", "rgw", "mon", "mgr", "mds", "generator"];
const classLine = (name) => line(name, palette(Math.max(0, classes.indexOf(name))), {});
const coreTimes = (p, zero) => {
  const any = p.cores && Object.values(p.cores.classes)[0];
  return any ? any.map((_, i) => p.cores.start - zero + (i + 0.5) * p.cores.step) : [];
};

Object.assign(charts, {
  rate: onPhase((p) => {
    const values = [xs(p, p.start)], series = [time], bands = [];
    for (const [op, numbers] of Object.entries(p.ops)) {
      if (numbers.low) {
        const none = { width: 0, stroke: "transparent", label: "", class: "unseen" };
        values.push(numbers.high, numbers.low);
        series.push(line("", "transparent", none), line("", "transparent", none));
        bands.push({ series: [series.length - 2, series.length - 1], fill: tint(opColour(op), "22") });
      }
      values.push(numbers.rate);
      series.push(line(op, opColour(op), { width: 1.75 }));
    }
    const failed = errors(p);
    if (failed.some((n) => n > 0)) {
      values.push(failed.map((n) => n || null));
      series.push(line("failed", colour("bad"), { width: 0, points: { show: true, size: 5, fill: colour("bad"), stroke: colour("bad") } }));
    }
    return ofPhase(p, values, series, fromZero(), { bands });
  }),
  latency: onPhase((p) => {
    const values = [xs(p, p.start)], series = [time];
    for (const [op, numbers] of Object.entries(p.ops)) {
      values.push(numbers.p99, numbers.mean);
      series.push(line(op + " p99", opColour(op), {}), line(op + " mean", opColour(op), { width: 1.5, dash: [1.5, 3] }));
    }
    return ofPhase(p, values, series, { distr: 3 });
  }),
  copies: onPhase((p) => ofCluster(p, [["degraded", "bad"], ["misplaced", "warning"]])),
  recovered: onPhase((p) => ofCluster(p, [["objects_per_s", "good", "objects/s"]])),
  in_flight: onPhase((p) => inFlight(p, "in_flight")),
  oldest_seconds: onPhase((p) => inFlight(p, "oldest_seconds")),
  pgs: onPhase((p) => ofPhase(p, [p.pgs.t, p.pgs.not_clean], [time, pgLine()], fromZero(1))),
  cores: onPhase((p) => ofPhase(p, [coreTimes(p, p.start), ...Object.values(p.cores.classes)],
    [time, ...Object.keys(p.cores.classes).map(classLine)], fromZero())),
  run() {
    const names = [...new Set(phases.flatMap((p) => Object.keys(p.ops)))];
    const all = joined(names, (p) => xs(p, begin), (p, op) => p.ops[op] && p.ops[op].rate);
    return ofRun(all, names.map((op) => line(op, opColour(op), {})), calmRange());
  },
  "run-pgs"() {
    const all = joined(["pgs"], (p) => p.pgs.t.map((t) => t + p.start - begin), (p) => p.pgs.not_clean);
    return ofRun(all, [pgLine()], fromZero(1));
  },
  "run-copies"() {
    const all = joined(["degraded", "misplaced"], (p) => clusterTimes(p, "degraded", begin), (p, name) => p.failure[name]);
    return ofRun(all, [stack("degraded", "bad"), stack("misplaced", "warning")], fromZero());
  },
  "run-recovered"() {
    const all = joined(["objects_per_s"], (p) => clusterTimes(p, "objects_per_s", begin), (p, name) => p.failure[name]);
    return ofRun(all, [stack("objects/s", "good")], fromZero());
  },
  "run-cores"() {
    const names = classes.filter((name) => phases.some((p) => p.cores && p.cores.classes[name]));
    const all = joined(names, (p) => coreTimes(p, begin), (p, name) => p.cores.classes[name]);
    return ofRun(all, names.map(classLine), fromZero());
  },
});
document.querySelectorAll("[data-op]").forEach((key) => { key.style.background = opColour(key.dataset.op); });
return start(former, changed);
