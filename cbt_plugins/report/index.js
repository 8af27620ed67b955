// The curves of a sweep: latency over throughput, joined in the order of the loads, because the line may turn back
Object.assign(charts, {
  sweep(place) {
    const sweep = data.sweeps[place.dataset.sweep], order = sweep.points.map((_, i) => i);
    order.sort((a, b) => sweep.points[a].obj_per_s - sweep.points[b].obj_per_s);
    const lines = [["mean_ms", "mean ms", 0], ["p99_ms", "p99 ms", 1]];
    const joined = (u) => {
      const { ctx, bbox } = u, ratio = devicePixelRatio;
      const at = (p, key) => [u.valToPos(p.obj_per_s, "x", true), u.valToPos(p[key], "y", true)];
      ctx.save();
      ctx.beginPath();
      ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
      ctx.clip();
      ctx.lineWidth = 1.75 * ratio;
      for (const [key, , i] of lines) {
        ctx.strokeStyle = palette(i);
        ctx.beginPath();
        sweep.points.filter((p) => p[key] != null).forEach((p) => ctx.lineTo(...at(p, key)));
        ctx.stroke();
      }
      ctx.font = 11 * ratio + "px " + font;
      ctx.textAlign = "left";
      ctx.fillStyle = colour("soft");
      for (const p of sweep.points) {
        const [x, y] = at(p, "mean_ms");
        ctx.fillText(String(p.load), x + 6 * ratio, y + 14 * ratio);
      }
      if (sweep.knee != null) {
        const p = sweep.points[sweep.knee], [x, y] = at(p, "mean_ms");
        ctx.strokeStyle = ctx.fillStyle = colour("ink");
        ctx.beginPath();
        ctx.arc(x, y, 8 * ratio, 0, 7);
        ctx.stroke();
        ctx.textAlign = "right";
        ctx.fillText("knee", x - 12 * ratio, y - 8 * ratio);
      }
      ctx.restore();
    };
    const dots = (label, stroke) => line(label, stroke, { paths: () => null, points: { show: true, size: 6, fill: stroke } });
    const padded = { range: (u, low, high) => [low - ((high - low) * 0.06 || 1), high + ((high - low) * 0.06 || 1)] };
    return {
      data: [order.map((i) => sweep.points[i].obj_per_s), ...lines.map(([key]) => order.map((i) => sweep.points[i][key])),
        order.map((i) => sweep.points[i].load)],
      options: {
        series: [{ label: "obj/s", value: (u, v) => number(v) }, ...lines.map(([, label, i]) => dots(label, palette(i))),
          line(sweep.unit, "transparent", { paths: () => null, scale: "load" })],
        scales: { x: { time: false, ...padded }, y: fromZero() },
        axes: [axis({ values: (u, splits) => splits.map(short), size: 26, space: 60 }), valueAxis()],
        hooks: { draw: [joined] },
      },
    };
  },
});
start();
