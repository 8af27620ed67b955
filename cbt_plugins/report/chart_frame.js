// What all pages draw with: colours, numbers, axes; every page adds its kinds of charts and calls `start`.
const data = given || JSON.parse(document.getElementById("data").textContent);
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
const operations = ["get", "put", "stat", "delete", "list"];
const palette = (i) => colour(typeof i === "number" ? "line" + i % 8 : i);
const works = []; // operations of works (readers:GET), as they come
const opColour = (op) => {
  if (!op.includes(":")) return colour(operations.includes(op.toLowerCase()) ? op.toLowerCase() : "other");
  if (!works.includes(op)) works.push(op);
  return palette(works.indexOf(op));
};
const dashes = [[], [6, 3], [2, 3], [9, 3, 2, 3]];
const tint = (hex, alpha) => hex + alpha;
const number = (v) => v == null ? "" : v >= 1000 ? Math.round(v).toLocaleString("en-US") : String(+v.toPrecision(4));
const two = (n) => String(n).padStart(2, "0");
const clock = (s) => {
  const sign = s < 0 ? "-" : "", t = Math.round(Math.abs(s)), h = Math.floor(t / 3600), m = Math.floor(t / 60) % 60;
  return sign + (h ? h + ":" + two(m) : m) + ":" + two(t % 60);
};
const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800];
const font = "system-ui, sans-serif";

const axis = (overrides) =>
  ({ stroke: colour("soft"), grid: { stroke: colour("rule"), width: 1 }, ticks: { show: false }, font: "11px " + font, ...overrides });
const timeAxis = () => axis({ incrs: steps, space: 70, values: (u, splits) => splits.map(clock), size: 26 });
const short = (v) => v == null ? "" : v >= 1e6 ? v / 1e6 + "M" : v >= 1e4 ? v / 1e3 + "k" : +v.toPrecision(6) + "";
const valueAxis = (overrides) => axis({ values: (u, splits) => splits.map(short), size: 52, space: 40, ...overrides });

const time = { label: "time", value: (u, v) => v == null ? "" : clock(v) };
// A line of one point or two would not be seen
const few = (u, i) => u.data[i].reduce((n, v) => n + (v != null), 0) < 3;
const line = (label, stroke, overrides) =>
  ({ label, stroke, width: 1.5, points: { show: few, size: 4 }, value: (u, v) => number(v), spanGaps: false, ...overrides });
const fromZero = (least = 0) => ({ range: (u, low, high) => [0, (Math.max(high || 0, least) || 1) * 1.06] });
const overTime = (series, y, overrides) => ({ series, scales: { x: { time: false }, y }, ...overrides });
// Whether a time is in the part of a chart that is zoomed; an end of the data that is seen has all beyond it
const within = (u) => {
  const [times] = u.data, { min, max } = u.scales.x;
  return (t) => (t >= min || min <= times[0]) && (t <= max || max >= times[times.length - 1]);
};
const together = (key) => ({ sync: { key } });

const charts = {
  // Latency over quantile: the k-th value of a curve is that of 1 - 10^(-k / 10), so that x counts the nines
  tail(place) {
    const curves = data.tails[place.dataset.tail].curves, longest = Math.max(...curves.map((c) => c.ms.length));
    const nines = [0, 1, 2, 3, 4, 5, 6, 7], between = [0.30103, 1.30103];
    const percent = (v) => v == null ? "" : +(100 * (1 - 10 ** -v)).toFixed(Math.max(1, Math.ceil(v) - 1)) + " %";
    const quantile = { label: "quantile", value: (u, v) => percent(v) };
    return {
      data: [Array.from({ length: longest }, (_, k) => k / 10),
        ...curves.map((c) => Array.from({ length: longest }, (_, k) => c.ms[k] ?? null))],
      options: {
        series: [quantile, ...curves.map((c) => line(c.name, palette(c.colour), { dash: dashes[c.dash % 4], width: c.dash ? 1.5 : 2 }))],
        scales: { x: { time: false }, y: { distr: 3 } },
        padding: [8, 32, 0, 0],
        axes: [axis({ splits: (u, i, low, high) => (high - low > 4 || u.width < 420 ? nines : [...nines, ...between]).filter((v) => v >= low - 1e-9 && v <= high + 1e-9),
          values: (u, splits) => splits.map(percent), size: 26 }), valueAxis()],
        cursor: together("tail"),
      },
    };
  },
};

// Each chart is a picture with a name for those who cannot see it, and has a table with its numbers, made when it is opened
const nameOf = (place) => {
  const caption = place.closest("figure") ? place.closest("figure").querySelector("figcaption") : place.previousElementSibling;
  return place.dataset.label || (caption ? caption.innerText : "chart");
};
const tableOf = (plot) => {
  const shown = plot.series.map((s, i) => i).filter((i) => !i || (plot.series[i].label && plot.series[i].class !== "unseen"));
  const table = document.createElement("table");
  const row = (tag, cells) => {
    const tr = document.createElement("tr");
    for (const text of cells) tr.append(Object.assign(document.createElement(tag), { innerText: text }));
    return tr;
  };
  const head = document.createElement("thead"), body = document.createElement("tbody");
  head.append(row("th", shown.map((i) => plot.series[i].label)));
  plot.data[0].forEach((_, k) => {
    const values = shown.map((i) => plot.data[i][k]);
    if (values.slice(1).some((v) => v != null)) body.append(row("td", shown.map((i, n) => plot.series[i].value(plot, values[n], i, k))));
  });
  table.append(head, body);
  return table;
};
const describe = (place, plot) => {
  const canvas = plot.root.querySelector("canvas");
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", nameOf(place) + ": the table below has the numbers");
  const details = document.createElement("details"), summary = document.createElement("summary");
  details.className = "numbers";
  summary.innerText = "Numbers";
  details.append(summary);
  details.addEventListener("toggle", () => { if (details.open && !details.querySelector("table")) details.append(tableOf(plot)); });
  place.querySelectorAll("details.numbers").forEach((former) => former.remove());
  place.append(details);
};

// `former`: the charts that an earlier state of a live page has; those that have not `changed` stay, others keep their zoom
const start = (former = new Map(), changed = () => true) => {
  const places = [...document.querySelectorAll("[data-chart]")], plots = new Map(), end = new AbortController();
  const draw = (place) => {
    const chart = charts[place.dataset.chart](place);
    const height = ["tall", "low"].map((name) => place.classList.contains(name)).reduce((h, is, i) => is ? [260, 96][i] : h, 210);
    const axes = [timeAxis(), valueAxis(height < 150 ? { space: 25 } : {})];
    // the axes of a low chart need less room from line to line
    if (chart.options.axes && height < 150) chart.options.axes[1] = axes[1];
    const dashed = (u, i) => (u.series[i].dash || []).length > 0;
    const legend = { markers: { dash: (u, i) => dashed(u, i) ? "dotted" : "solid", fill: (u, i) => dashed(u, i) ? null : u.series[i].stroke(u, i) } };
    const cursor = { points: { size: 6 }, drag: { x: true, y: false }, ...chart.options.cursor };
    const plot = new uPlot({ width: place.clientWidth, height, padding: [8, 24, 0, 0], axes, legend, ...chart.options, cursor }, chart.data, place);
    describe(place, plot);
    return plot;
  };
  const drawAll = () => places.forEach((place) => {
    if (plots.has(place)) plots.get(place).destroy();
    plots.set(place, draw(place));
  });
  for (const place of places) {
    const earlier = former.get(place);
    former.delete(place);
    if (earlier && !changed(place)) {
      plots.set(place, earlier);
      continue;
    }
    const plot = draw(place);
    plots.set(place, plot);
    if (earlier) {
      const { min, max } = earlier.scales.x, xs = earlier.data[0];
      if (min > xs[0] || max < xs[xs.length - 1]) plot.setScale("x", { min, max });
      earlier.destroy();
    }
  }
  former.forEach((plot) => plot.destroy());
  // Paper is white, whatever the screen is
  const paper = (is) => { document.documentElement.classList.toggle("paper", is); drawAll(); };
  const once = { signal: end.signal };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll, once);
  addEventListener("beforeprint", () => paper(true), once);
  addEventListener("afterprint", () => paper(false), once);
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; drawAll(); } }, once);
  return { plots, end: () => end.abort() };
};
