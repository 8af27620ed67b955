// The page of a run that goes on: its parts and its data as they change, by server-sent events
const state = JSON.parse(document.getElementById("data").textContent);
const bar = document.getElementById("live");
let shown = { plots: new Map(), end: () => {} };
const partOf = (html) => {
  const template = document.createElement("template");
  template.innerHTML = html;
  return template.content.firstElementChild;
};
const keyOf = (part) => part.id || part.localName;
const parts = () => new Map([...document.querySelectorAll("header, main > *")].map((part) => [keyOf(part), part]));
// Tables that a reader has opened stay open: the same by their title, as more may come before them, without its numbers
const titled = (part) => {
  const times = {};  // title -> how many tables have it so far
  return [...part.querySelectorAll("details:not(.numbers)")].map((details) => {
    const title = details.querySelector("summary")?.textContent.replace(/\d+/g, "");
    times[title] = (times[title] ?? 0) + 1;
    return [`${title} ${times[title]}`, details];
  });
};
const replace = (old, part) => {
  const tables = new Map(titled(old));
  titled(part).forEach(([title, details]) => { details.open = tables.get(title)?.open ?? details.open; });
  // charts stay where they are, and with them what a reader looks at
  const places = new Map([...old.querySelectorAll("[data-chart]")].map((place) => [JSON.stringify(place.dataset), place]));
  part.querySelectorAll("[data-chart]").forEach((place) => {
    const former = places.get(JSON.stringify(place.dataset));
    if (former) place.replaceWith(former);
  });
  old.replaceWith(part);
};
const take = ({ order, changed, data }) => {
  const present = parts(), main = document.querySelector("main");
  for (const key of order) {
    if (changed[key] === undefined) continue;
    const part = partOf(changed[key]), old = present.get(key);
    if (old) replace(old, part);
    else main.append(part);
  }
  const now = parts();
  now.forEach((part, key) => { if (!order.includes(key)) part.remove(); });
  order.filter((key) => key !== "header").forEach((key) => { if (now.has(key)) main.append(now.get(key)); });
  for (const [path, from, values] of data) {
    const place = path.slice(0, -1).reduce((value, key) => value[key], state), key = path[path.length - 1];
    if (from === null) place[key] = values;
    else place[key].splice(from, Infinity, ...values);
  }
  const phases = new Set(data.filter(([path]) => path[0] === "phases" && path.length > 1).map(([path]) => String(path[1])));
  phases.add(String(state.newerIn));
  delete state.newer;
  delete state.newerIn;
  draw((place) => place.dataset.phase === undefined || phases.has(place.dataset.phase));
};
const draw = (changed) => {
  shown.end();
  shown = show(state, shown.plots, changed);
};
// Faults come to the charts with the next page; until then they are marked at the right end of the charts of the run, and
// of those of the phase that runs, if it has charts
const mark = (marks, inPhase) => {
  const titles = [...new Set(marks.map((mark) => mark.title))].join(", "), former = state.newerIn;
  const newer = marks.length ? [{ t: marks[marks.length - 1].t, title: titles }] : [];
  const newerIn = marks.length && inPhase ? state.phases.length - 1 : -1;
  if (JSON.stringify([state.newer ?? [], former ?? -1]) === JSON.stringify([newer, newerIn])) return;
  Object.assign(state, { newer, newerIn });
  shown.plots.forEach((plot, place) => { if ([undefined, String(former), String(newerIn)].includes(place.dataset.phase)) plot.redraw(); });
};
draw(() => true);

const source = new EventSource("events?since=" + bar.dataset.version);
const tell = (lines) => bar.replaceChildren(...lines.map((line) => Object.assign(document.createElement("p"), { textContent: line })));
source.addEventListener("moment", (event) => {
  const { lines, marks, in_phase: inPhase } = JSON.parse(event.data);
  bar.classList.remove("lost");
  tell(lines);
  mark(marks, inPhase);
});
source.addEventListener("page", (event) => take(JSON.parse(event.data)));
// the run has ended, or this page is too old for a difference: the server has the whole page
source.addEventListener("whole", () => { source.close(); location.reload(); });
source.addEventListener("error", () => bar.classList.add("lost"));
