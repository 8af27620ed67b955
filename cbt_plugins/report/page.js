// The charts of one run
const phases = data.phases;
const begin = Math.min(...phases.map((p) => p.start));
const first = Math.min(0, ...phases.flatMap((p) => p.pgs.t.slice(0, 1).map((t) => t + p.start - begin)));
const last = Math.max(...phases.map((p) => p.window.end - begin), ...phases.flatMap((p) => p.pgs.t.slice(-1).map((t) => t + p.start - begin)));

// The window of every phase: shaded, with its name when there is room for it
const shade = (u) => {
  const { ctx, bbox } = u, ratio = devicePixelRatio || 1;
  ctx.save();
  ctx.font = 11 * ratio + "px " + font;
  ctx.textAlign = "center";
  for (const p of phases) {
    const clip = (v) => Math.min(Math.max(v, bbox.left), bbox.left + bbox.width);
    const left = clip(u.valToPos(p.window.start - begin, "x", true)), right = clip(u.valToPos(p.window.end - begin, "x", true));
    if (right - left < 1) continue;
    ctx.fillStyle = colour("band");
    ctx.fillRect(left, bbox.top, right - left, bbox.height);
    broken(u, p, begin);
    ctx.fillStyle = colour("soft");
    if (ctx.measureText(p.name).width + 8 * ratio < right - left) ctx.fillText(p.name, (left + right) / 2, bbox.top - 6 * ratio);
  }
  ctx.restore();
};

// What was broken: shaded states and a line at every milestone; `zero` is the chart's own beginning
const broken = (u, p, zero) => {
  if (!p.failure) return;
  const { ctx, bbox } = u, shift = p.failure.start - zero;
  const at = (t) => Math.min(Math.max(u.valToPos(t + shift, "x", true), bbox.left), bbox.left + bbox.width);
  ctx.save();
  for (const w of p.failure.windows) {
    if (w.state === "no failure" || w.state.startsWith("clean")) continue;
    ctx.fillStyle = tint(colour(["failing", "degraded", "failed"].includes(w.state) ? "bad" : "warning"), "1c");
    ctx.fillRect(at(w.from), bbox.top, at(w.to) - at(w.from), bbox.height);
  }
  ctx.strokeStyle = tint(colour("bad"), "88");
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([2 * devicePixelRatio, 3 * devicePixelRatio]);
  for (const m of p.failure.marks) {
    ctx.beginPath();
    ctx.moveTo(at(m.at), bbox.top);
    ctx.lineTo(at(m.at), bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
};

const onPhase = (made) => (place) => made(phases[place.dataset.phase]);
const xs = (p, zero) => {
  const any = Object.values(p.ops)[0];
  return any ? any.rate.map((_, i) => p.start - zero + (i + 0.5) * p.step) : [];
};
const errors = (p) => xs(p, 0).map((_, i) => Object.values(p.ops).reduce((sum, its) => sum + its.errors[i], 0));
// A chart of one phase: its failure shaded, its cursor and its zoom those of the other charts of the phase
const ofPhase = (p, values, series, y, more) =>
  ({ data: values, options: overTime(series, y, { hooks: { drawClear: [(u) => broken(u, p, p.start)] }, cursor: together(p.name), ...more }) });
// A chart of the run: all of them have the same first and last time, so that they stand over each other
const ofRun = ([times, ...values], series, y) => !times.length ? { data: [[]] } : {
  data: [[first, ...times, last], ...values.map((v) => [null, ...v, null])],
  options: overTime(series, y, { padding: [18, 24, 0, 0], hooks: { drawClear: [shade] }, cursor: together("run") }),
};
// Lines of names that not every phase has, with a hole after every phase
const joined = (names, timesOf, valuesOf) => {
  const all = [[], ...names.map(() => [])];
  for (const p of phases) {
    const own = timesOf(p);
    if (!own.length) continue;
    all[0].push(...own, own[own.length - 1] + 1e-3);
    names.forEach((name, i) => all[i + 1].push(...(valuesOf(p, name) || own.map(() => null)), null));
  }
  return all;
};
const pgLine = () => line("PGs not clean", colour("warning"), { fill: tint(colour("warning"), "33"), paths: uPlot.paths.stepped({ align: 1 }) });
const stack = (what, key) => line(what, colour(key), { fill: tint(colour(key), "22") });
// The cluster, on the time axis of the client
const ofCluster = (p, lines) => {
  const f = p.failure, times = f ? f[lines[0][0]].map((_, i) => f.start - p.start + (i + 0.5) * f.step) : [];
  return ofPhase(p, [times, ...lines.map(([what]) => f ? f[what] : [])],
    [time, ...lines.map(([what, key, label]) => stack(label || what, key))], fromZero());
};
// What the generators said of themselves while they ran: a line for each driver
const perDriver = (p, what) => {
  const own = p.under_way, drivers = Object.entries(own.drivers);
  const times = drivers.length ? drivers[0][1][what].map((_, i) => own.start - p.start + (i + 0.5) * own.step) : [];
  return ofPhase(p, [times, ...drivers.map(([, its]) => its[what])],
    [time, ...drivers.map(([name], i) => line(name, palette(i), { spanGaps: true }))], fromZero());
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
    for (const [op, its] of Object.entries(p.ops)) {
      if (its.low) {
        const none = { width: 0, stroke: "transparent", label: "", class: "unseen" };
        values.push(its.high, its.low);
        series.push(line("", "transparent", none), line("", "transparent", none));
        bands.push({ series: [series.length - 2, series.length - 1], fill: tint(opColour(op), "22") });
      }
      values.push(its.rate);
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
    for (const [op, its] of Object.entries(p.ops)) {
      values.push(its.p99, its.mean);
      series.push(line(op + " p99", opColour(op), {}), line(op + " mean", opColour(op), { width: 1.5, dash: [1.5, 3] }));
    }
    return ofPhase(p, values, series, { distr: 3 });
  }),
  copies: onPhase((p) => ofCluster(p, [["degraded", "bad"], ["misplaced", "warning"]])),
  recovered: onPhase((p) => ofCluster(p, [["objects_per_s", "good", "objects/s"]])),
  in_flight: onPhase((p) => perDriver(p, "in_flight")),
  oldest_seconds: onPhase((p) => perDriver(p, "oldest_seconds")),
  pgs: onPhase((p) => ofPhase(p, [p.pgs.t, p.pgs.not_clean], [time, pgLine()], fromZero(1))),
  cores: onPhase((p) => ofPhase(p, [coreTimes(p, p.start), ...Object.values(p.cores.classes)],
    [time, ...Object.keys(p.cores.classes).map(classLine)], fromZero())),
  run() {
    const names = [...new Set(phases.flatMap((p) => Object.keys(p.ops)))];
    const all = joined(names, (p) => xs(p, begin), (p, op) => p.ops[op] && p.ops[op].rate);
    return ofRun(all, [time, ...names.map((op) => line(op, opColour(op), {}))], fromZero());
  },
  "run-pgs"() {
    const times = phases.flatMap((p) => p.pgs.t.map((t) => t + p.start - begin));
    return ofRun([times, phases.flatMap((p) => p.pgs.not_clean)], [time, pgLine()], fromZero(1));
  },
  "run-cores"() {
    const names = classes.filter((name) => phases.some((p) => p.cores && p.cores.classes[name]));
    const all = joined(names, (p) => coreTimes(p, begin), (p, name) => p.cores.classes[name]);
    return ofRun(all, [time, ...names.map(classLine)], fromZero());
  },
});
start();
