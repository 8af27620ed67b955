// The plots of a history: the values of a series over time, and its levels
Object.assign(charts, {
  history(place) {
    const { times, values, levels } = data.tracks[place.dataset.track];
    const day = (t) => t == null ? "" : new Date(1000 * t).toISOString().slice(0, 10);
    const dots = { paths: () => null, points: { show: true, size: 5, fill: palette(0) } };
    return {
      data: [times, values, levels],
      options: {
        series: [{ label: "date", value: (u, t) => day(t) }, line("value", palette(0), dots),
          line("level", palette(1), { width: 2, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } })],
        scales: { x: { time: false }, y: {} },
        axes: [axis({ values: (u, splits) => splits.map(day), size: 26, space: 90 }), valueAxis()],
      },
    };
  },
});
start();
