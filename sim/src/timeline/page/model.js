// What is shown, without a word of how: events and spans by name, the filter, rows, the scale of time.

const KINDS = {
  fault: "faults", request: "requests", save: "saves", wait: "waits", put: "puts", ask: "waiting",
  get: "gets", load: "loads", quarantine: "quarantined", object: "objects", close: "shutdowns",
  host: "hosts", pool: "pools", phase: "phases",
};

/** The recorded data with names in place of indices. */
function readModel(data) {
  const host = (index) => data.hosts[index];
  const key = (index) => (index === null ? "" : data.keys[index]);
  const events = data.events.map(([time, at, about, kind, tone, text], index) => ({
    number: index + 1, time, host: host(at), key: key(about), kind, tone, text, span: null,
    words: `${host(at)} ${text}`.toLowerCase(),
  }));
  const spans = data.spans.map((span) => {
    const [began, ended] = [events[span.began - 1], span.ended && events[span.ended - 1]];
    const end = span.end_us ?? data.end_us;
    const made = {
      host: host(span.host), key: key(span.key), kind: span.kind, row: span.row, name: span.name,
      start: span.start_us, end, open: span.end_us === null, tone: span.tone, began, ended,
      words: `${host(span.host)} ${span.name} ${began.text} ${ended ? ended.text : ""}`.toLowerCase(),
    };
    began.span = made;
    // What ends many, a death for one, stays an event of its own.
    if (ended && ended.kind !== "host" && ended.kind !== "pool") ended.span ??= made;
    return made;
  });
  const bands = data.bands.map((band) => ({
    host: host(band.host), kind: band.kind, name: band.name, start: band.start_us,
    end: band.end_us ?? data.end_us,
  }));
  const kinds = Object.keys(KINDS).filter((kind) => events.some((event) => event.kind === kind)
    || spans.some((span) => span.kind === kind));
  // In the order in which a request meets them; the store, which all use, comes last.
  const order = ["world", "client", "encoder", "prefill", "master", "node"];
  const rank = (name) => order.indexOf(name.replace(/\d+$/, ""));
  const hosts = [...data.hosts].sort((a, b) => rank(a) - rank(b));
  return { ...data, hosts, events, spans, bands, kinds, end: Math.max(data.end_us, 1) };
}

/** A filter: all words have to be there, `host:` and `key:` in their fields; and the kind is one of those. */
function makeFilter(text, hidden, numbers) {
  const terms = text.toLowerCase().split(/\s+/).filter(Boolean);
  const has = (thing, term) => {
    if (term.startsWith("host:")) return thing.host.toLowerCase() === term.slice(5);
    if (term.startsWith("key:")) return thing.key.toLowerCase() === term.slice(4);
    return thing.words.includes(term);
  };
  return (thing) => !hidden.has(thing.kind) && terms.every((term) => has(thing, term))
    && (!numbers || numbers.has(thing.number ?? thing.began.number)
      || Boolean(thing.ended && numbers.has(thing.ended.number)));
}

/** What passes the filter, with those of its events that are no part of a shown span as marks. */
function shown(model, filter) {
  const events = model.events.filter(filter);
  const spans = model.spans.filter(filter);
  const inSpans = new Set(spans);
  const marks = events.filter((event) => !inSpans.has(event.span) && event.kind !== "phase");
  return { events, spans, marks };
}

const ROW = 16;
const LANE_GAP = 10;
const GROUP_GAP = 3;
const MARKS = 12;
/** Height that the rows of a group share, however many, unless their host is opened. */
const GROUP_MAX = 6 * ROW;

/** Lanes from top to bottom: `{host, top, height, marks, groups: [{kind, top, row, rows}]}`. */
function layout(model, view, opened) {
  const rows = new Map();
  for (const { host, kind, row } of view.spans) {
    const slot = `${host} ${kind}`;
    if (!rows.has(slot)) rows.set(slot, new Set());
    rows.get(slot).add(row);
  }
  const marked = new Set(view.marks.map((mark) => mark.host));
  let top = 0;
  const lanes = [];
  for (const host of model.hosts) {
    const lane = { host, top, marks: null, groups: [] };
    let y = top + LANE_GAP / 2;
    if (marked.has(host)) { lane.marks = y + MARKS / 2; y += MARKS + GROUP_GAP; }
    for (const kind of Object.keys(KINDS)) {
      const used = rows.get(`${host} ${kind}`);
      if (!used) continue;
      // The rows that a filter leaves empty are closed up.
      const order = new Map([...used].sort((a, b) => a - b).map((row, index) => [row, index]));
      const height = opened.has(host) ? ROW : Math.min(ROW, GROUP_MAX / order.size);
      lane.groups.push({ kind, top: y, row: height, rows: order });
      y += order.size * height + GROUP_GAP;
    }
    lane.height = y - top + LANE_GAP / 2;
    if (lane.groups.length || lane.marks !== null) { lanes.push(lane); top += lane.height; }
  }
  return { lanes, height: top };
}

/** Puts the rectangle of every shown span on it: `y`, `height`. */
function place(view, { lanes }) {
  const groups = new Map();
  for (const lane of lanes) for (const group of lane.groups) groups.set(`${lane.host} ${group.kind}`, group);
  for (const span of view.spans) {
    const group = groups.get(`${span.host} ${span.kind}`);
    span.y = group.top + group.rows.get(span.row) * group.row;
    span.height = Math.max(1, group.row - (group.row > 6 ? 2 : group.row > 2 ? 1 : 0));
  }
}

/** The part of the run in `window` after zooming by `factor` around `at`, within the run. */
function zoomed(window, end, factor, at) {
  const length = Math.min(end, Math.max(50, (window.to - window.from) * factor));
  const share = (at - window.from) / (window.to - window.from);
  return moved({ from: at - length * share, to: at + length * (1 - share) }, end, 0);
}

/** The window moved by a time, within the run. */
function moved(window, end, by) {
  const length = Math.min(end, window.to - window.from);
  const from = Math.min(Math.max(0, window.from + by), end - length);
  return { from, to: from + length };
}

/** Times for marks on the axis, at most `count`. */
function ticks({ from, to }, count) {
  let step = 1;
  for (let n = 0; (to - from) / step > count; n += 1) step *= [2, 2.5, 2][n % 3];
  const times = [];
  for (let time = Math.ceil(from / step) * step; time <= to; time += step) times.push(time);
  return { step, times };
}

/** A time for people, as exact as `step` asks for. */
function clock(us, step = 1) {
  if (step >= 1000) return `${(us / 1e6).toFixed(step >= 1e6 ? 0 : step >= 1e5 ? 1 : step >= 1e4 ? 2 : 3)} s`;
  return `${(us / 1e6).toFixed(6)} s`;
}

/** A length of time for people. */
function lasting(us) {
  if (us >= 1e6) return `${(us / 1e6).toFixed(3)} s`;
  return us >= 1000 ? `${+(us / 1000).toFixed(3)} ms` : `${us} µs`;
}

/** What a person wants to know of a span or event, as lines. */
function describe(thing) {
  if (thing.number) return [`${thing.number} · ${clock(thing.time)} · ${thing.host}`, thing.text];
  const how = { fine: "", bad: " · not as wished", cut: " · cut by the host's death", open: " · still open at the end" };
  const lines = [
    `${KINDS[thing.kind]} · ${thing.host} · ${lasting(thing.end - thing.start)}${how[thing.tone]}`,
    `${clock(thing.began.time)}  ${thing.began.text}`,
  ];
  if (thing.ended) lines.push(`${clock(thing.ended.time)}  ${thing.ended.text}`);
  return lines;
}
