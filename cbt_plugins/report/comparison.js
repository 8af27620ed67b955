// The charts of a comparison: runs over each other, each from the beginning of its phase

// The failures of the first run of each side: a lane for each at the bottom, with bad seconds in its lower half, and a
// line at each fault and undo
const lanes = (u, failures) => {
  const { ctx, bbox } = u, ratio = devicePixelRatio, height = 8 * ratio, bottom = bbox.top + bbox.height;
  const at = (t) => Math.min(Math.max(u.valToPos(t, "x", true), bbox.left), bbox.left + bbox.width);
  const fill = (from, to, top, high) => ctx.fillRect(at(from), top, at(to) - at(from), high);
  ctx.save();
  ctx.lineWidth = ratio;
  ctx.setLineDash([2 * ratio, 3 * ratio]);
  failures.forEach((failure, lane) => {
    const top = bottom - (failures.length - lane) * height, own = palette(failure.colour);
    for (const [from, to, hurt] of failure.bands) {
      ctx.fillStyle = tint(own, hurt ? "77" : "33");
      fill(from, to, top, height);
    }
    ctx.fillStyle = colour("bad");
    for (const [from, to] of failure.bad) fill(from, to, top + height / 2, height / 2);
    ctx.strokeStyle = tint(own, "aa");
    for (const t of failure.marks.filter(within(u))) {
      ctx.beginPath();
      ctx.moveTo(at(t), bbox.top);
      ctx.lineTo(at(t), bottom);
      ctx.stroke();
    }
  });
  ctx.restore();
};
Object.assign(charts, {
  overlay(place) {
    const { lines, failures } = data.overlays[place.dataset.overlay];
    const tables = lines.map((run) => [run.values.map((_, i) => (i + 0.5) * run.step), run.values]);
    const seen = new Set();
    const series = lines.map((run) => {
      const again = seen.has(run.colour);
      seen.add(run.colour);
      return line(run.name, palette(run.colour), { width: again ? 1 : 1.75, spanGaps: true });
    });
    return { data: uPlot.join(tables), options: overTime([time, ...series], fromZero(), { hooks: { drawClear: [(u) => lanes(u, failures)] }, cursor: together("overlay") }) };
  },
});
start();
