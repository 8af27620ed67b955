// The charts of a history: the values of a series over time, and its levels. On a site also the runs before which the
// release (line) or the configuration (dashes) changed, and a click on a run opens its report
Object.assign(charts, {
  history(place) {
    const { times, values, levels, links, marks } = data.tracks[place.dataset.track];
    const day = (t) => t == null ? "" : new Date(1000 * t).toISOString().slice(0, 10);
    const dots = { paths: () => null, points: { show: true, size: 5, fill: palette(0) } };
    const drawMarks = (u) => {
      const { ctx, bbox } = u;
      ctx.save();
      ctx.strokeStyle = colour("soft");
      ctx.lineWidth = devicePixelRatio;
      for (const [t, release] of marks) {
        const x = u.valToPos(t, "x", true);
        if (x < bbox.left || x > bbox.left + bbox.width) continue;
        ctx.setLineDash(release ? [] : [2 * devicePixelRatio, 4 * devicePixelRatio]);
        ctx.beginPath();
        ctx.moveTo(x, bbox.top);
        ctx.lineTo(x, bbox.top + bbox.height);
        ctx.stroke();
      }
      ctx.restore();
    };
    const openReports = (u) => u.over.addEventListener("click", () => {
      const link = u.cursor.idx == null || u.select.width ? "" : links[u.cursor.idx];
      if (link) location.href = link;
    });
    return {
      data: [times, values, levels],
      options: {
        series: [{ label: "date", value: (u, t) => day(t) }, line("value", palette(0), dots),
          line("level", palette(1), { width: 2, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } })],
        scales: { x: { time: false }, y: {} },
        axes: [axis({ values: (u, splits) => splits.map(day), size: 26, space: 90 }), valueAxis()],
        hooks: links ? { ready: [openReports], drawClear: [drawMarks] } : {},
      },
    };
  },
});
start();
