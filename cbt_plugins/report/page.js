(() => {
  "use strict";
  const phases = JSON.parse(document.getElementById("data").textContent);
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const known = ["get", "put", "stat", "delete", "list"];
  const opColour = (op) => colour(known.includes(op.toLowerCase()) ? op.toLowerCase() : "other");
  const number = (v) => v == null ? "–" : v >= 1000 ? Math.round(v).toLocaleString("en-US") : String(+v.toPrecision(4));
  const two = (n) => String(n).padStart(2, "0");
  const clock = (s) => {
    const sign = s < 0 ? "-" : "", t = Math.round(Math.abs(s)), h = Math.floor(t / 3600), m = Math.floor(t / 60) % 60;
    return sign + (h ? h + ":" + two(m) : m) + ":" + two(t % 60);
  };
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800];
  const begin = Math.min(...phases.map((p) => p.start));
  const first = Math.min(0, ...phases.flatMap((p) => p.pgs.t.slice(0, 1).map((t) => t + p.start - begin)));
  const last = Math.max(...phases.map((p) => p.window.end - begin), ...phases.flatMap((p) => p.pgs.t.slice(-1).map((t) => t + p.start - begin)));

  const axes = (size) => [
    { stroke: colour("soft"), grid: { stroke: colour("grid"), width: 1 }, ticks: { show: false }, incrs: steps, space: 70,
      values: (u, splits) => splits.map(clock), font: "11px system-ui, sans-serif", size: 26 },
    { stroke: colour("soft"), grid: { stroke: colour("grid"), width: 1 }, ticks: { show: false },
      values: (u, splits) => splits.map((v) => v == null ? "" : v >= 1e6 ? v / 1e6 + "M" : v >= 1e4 ? v / 1e3 + "k" : +v.toPrecision(6) + ""),
      font: "11px system-ui, sans-serif", size: 52, space: size < 150 ? 25 : 40 },
  ];
  const time = { label: "time", value: (u, v) => v == null ? "–" : clock(v) };
  const line = (label, stroke, more) =>
    ({ label, stroke, width: 1.5, points: { show: false }, value: (u, v) => number(v), spanGaps: false, ...more });
  const tint = (hex, alpha) => hex + alpha;

  // The window of every phase: shaded, with its name when there is room for it
  const shade = (u) => {
    const { ctx, bbox } = u, ratio = devicePixelRatio || 1;
    ctx.save();
    ctx.font = 11 * ratio + "px system-ui, sans-serif";
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
      ctx.fillStyle = tint(colour(["failing", "degraded", "failed"].includes(w.state) ? "bad" : "doubt"), "1c");
      ctx.fillRect(at(w.from), bbox.top, at(w.to) - at(w.from), bbox.height);
    }
    ctx.strokeStyle = tint(colour("bad"), "88");
    ctx.setLineDash([2, 3]);
    for (const m of p.failure.marks) {
      ctx.beginPath();
      ctx.moveTo(at(m.at), bbox.top);
      ctx.lineTo(at(m.at), bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  };
  const hurt = (p) => ({ drawClear: [(u) => broken(u, p, p.start)] });

  const charts = {
    rate(p) {
      const data = [xs(p, p.start)], series = [time], bands = [];
      for (const [op, its] of Object.entries(p.ops)) {
        if (its.low) {
          const none = { width: 0, stroke: "transparent", label: "" };
          data.push(its.high, its.low);
          series.push(line(op + " highest", "transparent", none), line(op + " lowest", "transparent", none));
          bands.push({ series: [series.length - 2, series.length - 1], fill: tint(opColour(op), "22") });
        }
        data.push(its.rate);
        series.push(line(op, opColour(op), { width: 1.75 }));
      }
      const failed = errors(p);
      if (failed.some((n) => n > 0)) {
        data.push(failed.map((n) => n || null));
        series.push(line("failed", colour("bad"), { width: 0, points: { show: true, size: 5, fill: colour("bad"), stroke: colour("bad") } }));
      }
      return { data, options: { series, bands, hooks: hurt(p), scales: { x: { time: false }, y: { range: (u, lo, hi) => [0, (hi || 1) * 1.06] } } } };
    },
    latency(p) {
      const data = [xs(p, p.start)], series = [time];
      for (const [op, its] of Object.entries(p.ops)) {
        data.push(its.p99, its.mean);
        series.push(line(op + " p99", opColour(op), {}), line(op + " mean", opColour(op), { width: 1.5, dash: [1.5, 3] }));
      }
      return { data, options: { series, hooks: hurt(p), scales: { x: { time: false }, y: { distr: 3 } } } };
    },
    copies: (p) => ofCluster(p, [["degraded", "bad"], ["misplaced", "doubt"]]),
    recovered: (p) => ofCluster(p, [["objects_per_s", "good"]]),
    in_flight: (p) => perDriver(p, "in_flight"),
    oldest_seconds: (p) => perDriver(p, "oldest_seconds"),
    pgs(p) {
      const data = [p.pgs.t, p.pgs.not_clean];
      return { data, options: { series: [time, pgLine()], scales: { x: { time: false }, y: { range: (u, lo, hi) => [0, Math.max(hi, 1) * 1.1] } } } };
    },
    run() {
      const names = [...new Set(phases.flatMap((p) => Object.keys(p.ops)))];
      const data = [[], ...names.map(() => [])], series = [time, ...names.map((op) => line(op, opColour(op), {}))];
      for (const p of phases) {
        const own = xs(p, begin);
        if (!own.length) continue;
        data[0].push(...own, own[own.length - 1] + p.step / 2);
        names.forEach((op, i) => data[i + 1].push(...(p.ops[op] ? p.ops[op].rate : own.map(() => null)), null));
      }
      if (!data[0].length) return { data };
      return { data: framed(data), options: { series, padding: [18, 12, 0, 0], hooks: { drawClear: [shade] }, cursor: { sync: { key: "run" } },
        scales: { x: { time: false }, y: { range: (u, lo, hi) => [0, (hi || 1) * 1.06] } } } };
    },
    "run-pgs"() {
      const data = [[], []];
      for (const p of phases) {
        data[0].push(...p.pgs.t.map((t) => t + p.start - begin));
        data[1].push(...p.pgs.not_clean);
      }
      if (!data[0].length) return { data };
      return { data: framed(data), options: { series: [time, pgLine()], hooks: { drawClear: [shade] }, padding: [18, 12, 0, 0], cursor: { sync: { key: "run" } },
        scales: { x: { time: false }, y: { range: (u, lo, hi) => [0, Math.max(hi, 1) * 1.1] } } } };
    },
  };
  // Both charts of the run get the same first and last time, so that they stand over each other
  const framed = ([times, ...values]) =>
    [[first, ...times, last], ...values.map((v) => [null, ...v, null])];
  // What the generators said of themselves while they ran: a line for each driver
  const perDriver = (p, what) => {
    const own = p.under_way, drivers = Object.entries(own.drivers);
    const times = drivers.length ? drivers[0][1][what].map((_, i) => own.start - p.start + (i + 0.5) * own.step) : [];
    const series = [time, ...drivers.map(([name], i) => line(name, colour([...known, "other"][i % 6]), { spanGaps: true }))];
    return { data: [times, ...drivers.map(([, its]) => its[what])],
      options: { series, scales: { x: { time: false }, y: { range: (u, lo, hi) => [0, (hi || 1) * 1.06] } } } };
  };
  const ofCluster = (p, lines) => {
    const f = p.failure, times = f ? f[lines[0][0]].map((_, i) => f.start - p.start + (i + 0.5) * f.step) : [];
    const series = [time, ...lines.map(([what, key]) => line(what.replace("objects_per_s", "objects/s"), colour(key), { fill: tint(colour(key), "22") }))];
    return { data: [times, ...lines.map(([what]) => f ? f[what] : [])],
      options: { series, hooks: hurt(p), scales: { x: { time: false }, y: { range: (u, lo, hi) => [0, (hi || 1) * 1.06] } } } };
  };
  const pgLine = () => line("PGs not clean", colour("doubt"), { fill: tint(colour("doubt"), "33"), paths: uPlot.paths.stepped({ align: 1 }) });
  const xs = (p, zero) => {
    const any = Object.values(p.ops)[0];
    return any ? any.rate.map((_, i) => p.start - zero + (i + 0.5) * p.step) : [];
  };
  const errors = (p) => xs(p, 0).map((_, i) => Object.values(p.ops).reduce((sum, its) => sum + its.errors[i], 0));

  const places = [...document.querySelectorAll("[data-chart]")];
  let plots = [];
  const draw = () => {
    plots.forEach((plot) => plot.destroy());
    plots = places.map((place) => {
      const { data, options } = charts[place.dataset.chart](phases[place.dataset.phase]);
      if (!data[0].length) { place.classList.add("empty"); return null; }
      const height = place.classList.contains("tall") ? 260 : place.classList.contains("low") ? 96 : 210;
      const cursor = { points: { size: 6 }, drag: { x: true, y: false }, ...options.cursor };
      return new uPlot({ width: place.clientWidth, height, padding: [8, 12, 0, 0], axes: axes(height), ...options, cursor }, data, place);
    }).filter(Boolean);
  };
  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  matchMedia("print").addEventListener("change", draw);
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; draw(); } });
})();
