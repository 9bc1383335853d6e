// Draws lanes, spans, bands and the overview. Colours are the style's, so light and dark are its choice.

const GUTTER = 128;
const AXIS = 36;

/** The style's colours by name. */
function readColours() {
  const style = getComputedStyle(document.documentElement);
  const names = ["back", "panel", "line", "text", "quiet", "bad", "cut", "select", ...Object.keys(KINDS)];
  const bands = ["fault", "paused", "disturbed", "down", "degraded"].map((band) => `band-${band}`);
  return Object.fromEntries([...names, ...bands].map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

/** Sizes a canvas for the screen's pixels; its context. */
function sized(canvas, width, height) {
  const scale = window.devicePixelRatio || 1;
  const [w, h] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== w || canvas.height !== h) {
    [canvas.width, canvas.height] = [w, h];
    [canvas.style.width, canvas.style.height] = [`${width}px`, `${height}px`];
  }
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  return context;
}

/** Draws what `state` says is to be seen. */
function draw(state, canvas, width, height, scroll) {
  const c = sized(canvas, width, height);
  const { colours, time } = state;
  const x = (us) => GUTTER + ((us - time.from) / (time.to - time.from)) * (width - GUTTER);
  c.fillStyle = colours.back;
  c.fillRect(0, 0, width, height);
  c.font = "11px system-ui, sans-serif";
  c.textBaseline = "middle";
  c.save();
  c.translate(0, AXIS - scroll);
  const seen = (top, tall) => top + tall >= scroll && top <= scroll + height - AXIS;
  const lanes = state.lanes.lanes.filter((lane) => seen(lane.top, lane.height));
  drawLanes(c, state, lanes, x, width);
  for (const span of state.view.spans) {
    if (seen(span.y, span.height) && span.end >= time.from && span.start <= time.to) drawSpan(c, state, span, x, width);
  }
  drawMarks(c, state, lanes, x);
  drawNames(c, state, lanes);
  c.restore();
  drawAxis(c, state, x, width, height);
}

function drawLanes(c, { colours, model }, lanes, x, width) {
  for (const lane of lanes) {
    for (const band of model.bands) {
      if (band.host !== lane.host) continue;
      const [left, right] = [Math.max(GUTTER, x(band.start)), Math.min(width, x(band.end))];
      if (right < GUTTER || left > width) continue;
      c.fillStyle = colours[`band-${band.kind}`];
      c.fillRect(left, lane.top, Math.max(1, right - left), lane.height);
    }
    c.fillStyle = colours.line;
    c.fillRect(0, lane.top, width, 1);
  }
}

function drawSpan(c, { colours, selected, related }, span, x, width) {
  const left = Math.max(GUTTER, x(span.start));
  const right = Math.min(width, Math.max(x(span.end), x(span.start) + 2));
  if (right < GUTTER) return;
  const dim = related && !related(span);
  c.globalAlpha = dim ? 0.25 : span.open ? 0.65 : 1;
  c.fillStyle = span.tone === "cut" ? colours.cut : colours[span.kind];
  c.fillRect(left, span.y, right - left, span.height);
  if (span.tone === "bad") {
    c.fillStyle = colours.bad;
    c.fillRect(Math.max(left, right - 4), span.y, Math.min(4, right - left), span.height);
    if (span.height > 6) c.fillRect(left, span.y + span.height - 2, right - left, 2);
  }
  if (span.height >= 11 && right - left > 34) {
    c.save();
    c.beginPath();
    c.rect(left, span.y, right - left - 5, span.height);
    c.clip();
    c.fillStyle = colours.back;
    c.fillText(span.name, left + 4, span.y + span.height / 2 + 0.5);
    c.restore();
  }
  c.globalAlpha = 1;
  if (span === selected || selected && span === selected.span) {
    c.strokeStyle = colours.text;
    c.lineWidth = 2;
    c.strokeRect(left, span.y - 1, right - left, span.height + 2);
  }
}

function drawMarks(c, state, lanes, x) {
  const { colours, related, selected } = state;
  const tops = new Map(lanes.map((lane) => [lane.host, lane.marks]));
  for (const mark of state.view.marks) {
    const y = tops.get(mark.host);
    const at = x(mark.time);
    if (y == null || at < GUTTER || mark.time > state.time.to) continue;
    c.globalAlpha = related && !related(mark) ? 0.25 : 1;
    c.fillStyle = mark.tone === "bad" ? colours.bad : colours[mark.kind];
    c.beginPath();
    c.moveTo(at, y - 5);
    c.lineTo(at + 4, y);
    c.lineTo(at, y + 5);
    c.lineTo(at - 4, y);
    c.fill();
    c.globalAlpha = 1;
    if (mark === selected) {
      c.strokeStyle = colours.text;
      c.lineWidth = 2;
      c.strokeRect(at - 6, y - 7, 12, 14);
    }
  }
}

/** The names of hosts and of their groups, left of everything. */
function drawNames(c, { colours, opened }, lanes) {
  for (const lane of lanes) {
    c.fillStyle = colours.panel;
    c.fillRect(0, lane.top + 1, GUTTER - 1, lane.height - 1);
    c.fillStyle = colours.text;
    c.textAlign = "left";
    c.font = "600 12px system-ui, sans-serif";
    const closed = lane.groups.some((group) => group.row < ROW) ? "▸ " : opened.has(lane.host) ? "▾ " : "";
    c.fillText(closed + lane.host, 8, lane.top + 13);
    c.font = "11px system-ui, sans-serif";
    c.textAlign = "right";
    for (const group of lane.groups) {
      const middle = group.top + (group.rows.size * group.row) / 2;
      c.fillStyle = colours[group.kind];
      c.fillRect(GUTTER - 5, group.top, 3, group.rows.size * group.row - 1);
      c.fillStyle = colours.quiet;
      c.fillText(KINDS[group.kind], GUTTER - 10, middle);
    }
    c.textAlign = "left";
  }
}

function drawAxis(c, { colours, model, time, selected }, x, width, height) {
  c.fillStyle = colours.panel;
  c.fillRect(0, 0, width, AXIS);
  const { step, times } = ticks(time, (width - GUTTER) / 90);
  for (const at of times) {
    c.fillStyle = colours.line;
    c.globalAlpha = 0.6;
    c.fillRect(x(at), 20, 1, height);
    c.globalAlpha = 1;
    c.fillStyle = colours.quiet;
    c.fillText(clock(at, step), x(at) + 3, 28);
  }
  drawPhases(c, { colours, model, time }, x, width);
  const line = (at, colour) => {
    if (at < time.from || at > time.to) return;
    c.fillStyle = colour;
    c.fillRect(x(at) - 1, 18, 2, height);
  };
  const chosen = selected && (selected.time ?? selected.start);
  if (chosen != null) line(chosen, colours.select);
  if (model.violation) line(model.violation.time_us, colours.bad);
  c.fillStyle = colours.line;
  c.fillRect(0, AXIS - 1, width, 1);
  c.fillRect(GUTTER - 1, 0, 1, height);
}

function drawPhases(c, { colours, model, time }, x, width) {
  c.save();
  c.beginPath();
  c.rect(GUTTER, 0, width - GUTTER, 18);
  c.clip();
  model.phases.forEach(([name, start], index) => {
    const end = index + 1 < model.phases.length ? model.phases[index + 1][1] : model.end;
    if (end < time.from || start > time.to) return;
    const left = Math.max(GUTTER, x(start));
    c.fillStyle = index % 2 ? colours.panel : colours.line;
    c.fillRect(left, 0, x(end) - left, 18);
    c.fillStyle = colours.text;
    if (x(end) - left > c.measureText(name).width + 6) c.fillText(name, left + 4, 9);
  });
  c.restore();
}

/** The whole run in little: how much happened when, faults, and the part that is shown. */
function drawOverview({ colours, model, view, time }, canvas, width, height) {
  const c = sized(canvas, width, height);
  const inner = width - GUTTER;
  const x = (us) => GUTTER + (us / model.end) * inner;
  c.fillStyle = colours.back;
  c.fillRect(0, 0, width, height);
  const bins = new Array(Math.max(1, Math.ceil(inner / 2))).fill(0);
  for (const event of view.events) bins[Math.min(bins.length - 1, Math.floor((event.time / model.end) * bins.length))] += 1;
  const most = Math.sqrt(Math.max(1, ...bins));
  c.fillStyle = colours.pool;
  bins.forEach((count, bin) => {
    const tall = (Math.sqrt(count) / most) * (height - 10);
    c.fillRect(GUTTER + bin * 2, height - tall, 2, tall);
  });
  c.fillStyle = colours.fault;
  for (const span of model.spans) if (span.kind === "fault") c.fillRect(x(span.start), 2, Math.max(2, x(span.end) - x(span.start)), 4);
  if (model.violation) {
    c.fillStyle = colours.bad;
    c.fillRect(x(model.violation.time_us) - 1, 0, 2, height);
  }
  c.fillStyle = colours.back;
  c.globalAlpha = 0.6;
  c.fillRect(GUTTER, 0, x(time.from) - GUTTER, height);
  c.fillRect(x(time.to), 0, width - x(time.to), height);
  c.globalAlpha = 1;
  c.strokeStyle = colours.select;
  c.strokeRect(x(time.from) + 0.5, 0.5, Math.max(2, x(time.to) - x(time.from) - 1), height - 1);
  c.fillStyle = colours.quiet;
  c.font = "11px system-ui, sans-serif";
  c.fillText("whole run", 8, height / 2 + 4);
}

/** The span or mark at a point of the canvas. */
function thingAt(state, px, py, width, scroll) {
  if (px < GUTTER || py < AXIS) return null;
  const { time, view } = state;
  const x = (us) => GUTTER + ((us - time.from) / (time.to - time.from)) * (width - GUTTER);
  const y = py - AXIS + scroll;
  const tops = new Map(state.lanes.lanes.map((lane) => [lane.host, lane.marks]));
  const near = (mark) => Math.abs(x(mark.time) - px) <= 5 && Math.abs(tops.get(mark.host) - y) <= 6;
  const inside = (span) => y >= span.y && y < span.y + Math.max(3, span.height)
    && px >= x(span.start) - 2 && px <= Math.max(x(span.end), x(span.start) + 2) + 1;
  return view.marks.findLast(near) ?? view.spans.findLast(inside) ?? null;
}
