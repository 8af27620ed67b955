// The charts of a comparison: runs over each other, each from the beginning of its phase
Object.assign(charts, {
  overlay(place) {
    const lines = data.overlays[place.dataset.overlay].lines;
    const tables = lines.map((its) => [its.values.map((_, i) => (i + 0.5) * its.step), its.values]);
    const seen = new Set();
    const series = lines.map((its) => {
      const again = seen.has(its.colour);
      seen.add(its.colour);
      return line(its.name, palette(its.colour), { width: again ? 1 : 1.75, spanGaps: true });
    });
    return { data: uPlot.join(tables), options: overTime([time, ...series], fromZero(), { cursor: together("overlay") }) };
  },
});
start();
