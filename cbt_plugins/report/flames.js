// A flame graph of data.tree: {n: name, v: [base, new] or [value], c: children}
const flames = document.getElementById("flames"), NS = "http://www.w3.org/2000/svg", LINE = 18, TEXT = 6.2;
const append = (name, values, parent) => {
  const element = document.createElementNS(NS, name);
  for (const key in values) element.setAttribute(key, values[key]);
  parent.append(element);
  return element;
};
// what a side no longer has needs room too
const size = (node) => Math.max(...node.v);
const ms = (value) => value.toPrecision(3) + " ms";
const label = (node) => node.n + ": " + (node.v.length > 1
  ? ms(node.v[0]) + " before, " + ms(node.v[1]) + " now" : ms(node.v[0])) + " of CPU per request";
const fill = (node, depth) => {
  if (node.v.length < 2) return `hsl(${20 + 7 * (depth % 5)} 75% ${62 + 3 * (depth % 3)}%)`;
  const most = Math.max(...data.tree.v), change = (node.v[1] - node.v[0]) / most;
  const strength = Math.min(1, Math.abs(change) * 10);
  return `hsl(${change > 0 ? 5 : 145} ${Math.round(70 * strength)}% ${Math.round(88 - 30 * strength)}%)`;
};
const deepest = (node) => 1 + Math.max(0, ...node.c.map(deepest));
function draw(path) {
  const width = flames.clientWidth, top = path[path.length - 1], levels = path.length - 1 + deepest(top);
  flames.replaceChildren();
  const svg = append("svg", { width, height: levels * LINE, role: "img", "aria-label": "flame graph" }, flames);
  const frame = (node, x, wide, depth, way) => {
    if (wide < 0.5) return;
    const g = append("g", { tabindex: 0 }, svg), y = (levels - 1 - depth) * LINE;
    append("title", {}, g).textContent = label(node);
    append("rect", { x, y, width: Math.max(0.4, wide - 0.5), height: LINE - 1, rx: 2, fill: fill(node, depth) }, g);
    const room = Math.floor((wide - 6) / TEXT);
    if (room > 2) append("text", { x: x + 4, y: y + 13, "font-size": 11, fill: "#1b2330" }, g).textContent =
      node.n.length > room ? node.n.slice(0, room - 1) + "\u2026" : node.n;
    g.addEventListener("click", () => draw(way));
    g.addEventListener("keydown", (event) => event.key === "Enter" && draw(way));
    for (const event of ["mouseenter", "focus"])
      g.addEventListener(event, () => { document.getElementById("frame").textContent = label(node); });
    if (depth < path.length - 1) return frame(path[depth + 1], 0, width, depth + 1, path.slice(0, depth + 2));
    const sum = Math.max(size(node), node.c.reduce((all, child) => all + size(child), 0));
    for (const child of node.c) {
      const part = wide * size(child) / sum;
      frame(child, x, part, depth + 1, [...way, child]);
      x += part;
    }
  };
  frame(path[0], 0, width, 0, [path[0]]);
}
let shown = 0;
new ResizeObserver(() => { if (flames.clientWidth !== shown) { shown = flames.clientWidth; draw([data.tree]); } }).observe(flames);
