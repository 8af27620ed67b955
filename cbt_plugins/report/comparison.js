// The charts of a comparison: runs over each other, each from the beginning of its phase
Object.assign(charts, {
  overlay(place) {
    const lines = data.overlays[place.dataset.overlay].lines;
    const tables = lines.map((run) => [run.values.map((_, i) => (i + 0.5) * run.step), run.values]);
    const seen = new Set();
    const series = lines.map((run) => {
      const again = seen.has(run.colour);
      seen.add(run.colour);
      return line(run.name, palette(run.colour), { width: again ? 1 : 1.75, spanGaps: true });
    });
    return { data: uPlot.join(tables), options: overTime([time, ...series], fromZero(), { cursor: together("overlay") }) };
  },
});
start();
