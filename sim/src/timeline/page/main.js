// Brings model, canvas and list together: what is selected, filtered and zoomed, and by which key or click.

const $ = (id) => document.getElementById(id);
const model = readModel(JSON.parse($("data").textContent));
const history = new Set(model.violation ? model.violation.history : []);
const state = {
  model, colours: readColours(), hidden: new Set(), onlyHistory: false, opened: new Set(),
  time: { from: 0, to: model.end }, selected: null, related: null, view: null, lanes: null,
};
const list = makeList($("list"), (event) => select(event, true));

function size() {
  return { width: Math.max(300, $("lanes").clientWidth), height: Math.max(100, $("lanes").clientHeight) };
}

let drawn = false;
function redraw() {
  if (drawn) return;
  drawn = true;
  requestAnimationFrame(() => {
    drawn = false;
    const { width, height } = size();
    draw(state, $("canvas"), width, height, $("lanes").scrollTop);
    drawOverview(state, $("overview"), width, 34);
  });
}

/** What is shown has changed. */
function refilter() {
  state.view = shown(model, makeFilter($("filter").value, state.hidden, state.onlyHistory ? history : null));
  relayout();
  $("filter").classList.toggle("none", state.view.events.length === 0);
  $("count").textContent = `${state.view.events.length} of ${model.events.length} events, ${state.view.spans.length} of ${model.spans.length} spans`;
  relist();
}

function relayout() {
  state.lanes = layout(model, state.view, state.opened);
  place(state.view, state.lanes);
  // The canvas stays in sight while this gives the scroll bar its length.
  $("height").style.height = `${Math.max(0, state.lanes.height + AXIS + 20 - size().height)}px`;
  redraw();
}

function relist() {
  const chosen = state.selected && (state.selected.began ?? state.selected);
  list.show(state.view.events, (event) => ({
    selected: event === chosen,
    history: history.has(event.number),
    broken: model.violation && event.number === model.violation.event,
  }));
}

/** Selects a span or an event; with `go`, brings it into sight. */
function select(thing, go) {
  state.selected = thing;
  const stays = (other) => other.key === thing.key || other === thing || other.kind === "fault";
  state.related = thing && thing.key ? stays : null;
  const lines = thing ? describe(thing) : [];
  const parts = lines.map((line, n) => {
    const part = document.createElement(n ? "p" : "h2");
    part.textContent = line;
    return part;
  });
  if (thing && thing.key) {
    const only = document.createElement("button");
    only.type = "button";
    only.textContent = `Only ${thing.key}`;
    only.addEventListener("click", onlyKey);
    parts.push(only);
  }
  $("details").replaceChildren(...parts);
  relist();
  if (thing) {
    list.reveal(thing.began ?? thing);
    if (go) reveal(thing);
  }
  redraw();
}

/** Moves time and lanes so that the thing is to be seen. */
function reveal(thing) {
  const at = thing.time ?? thing.start;
  const { from, to } = state.time;
  if (at < from || at > to) state.time = moved(state.time, model.end, at - (from + to) / 2);
  const span = thing.began ? thing : state.view.spans.includes(thing.span) ? thing.span : null;
  const lane = state.lanes.lanes.find((candidate) => candidate.host === thing.host);
  const y = span ? span.y : lane ? lane.top : 0;
  const [box, { height }] = [$("lanes"), size()];
  if (y < box.scrollTop || y > box.scrollTop + height - AXIS - ROW) box.scrollTop = Math.max(0, y - height / 3);
  redraw();
}

function step(by) {
  const events = state.view.events;
  if (!events.length) return;
  const current = state.selected && (state.selected.began ?? state.selected);
  const index = events.indexOf(current);
  const next = index < 0 ? (by > 0 ? 0 : events.length - 1) : Math.min(Math.max(index + by, 0), events.length - 1);
  select(events[next], true);
}

function zoom(factor, at = (state.time.from + state.time.to) / 2) {
  state.time = zoomed(state.time, model.end, factor, at);
  redraw();
}

function pan(share) {
  state.time = moved(state.time, model.end, share * (state.time.to - state.time.from));
  redraw();
}

function fit() {
  state.time = { from: 0, to: model.end };
  redraw();
}

function toViolation() {
  if (!model.violation) return;
  const event = model.events[model.violation.event - 1];
  const half = Math.min(model.end, Math.max(200_000, model.end / 20)) / 2;
  state.time = moved({ from: model.violation.time_us - half, to: model.violation.time_us + half }, model.end, 0);
  if (event) select(event, true);
  redraw();
}

function onlyKey() {
  const word = state.selected && state.selected.key ? `key:${state.selected.key}` : "";
  $("filter").value = $("filter").value === word ? "" : word;
  refilter();
  if (state.selected) list.reveal(state.selected.began ?? state.selected);
}

function showHistory(on) {
  state.onlyHistory = on;
  $("show-history").setAttribute("aria-pressed", String(on));
  refilter();
}

function clear() {
  $("filter").value = "";
  state.hidden.clear();
  for (const button of $("kinds").children) button.setAttribute("aria-pressed", "true");
  showHistory(false);
  select(null);
}

function toggleHelp() {
  $("keys").hidden = !$("keys").hidden;
  $("help").setAttribute("aria-expanded", String(!$("keys").hidden));
  relayout();
}

const KEYS = {
  "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6), 0: fit,
  ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2),
  ArrowUp: () => { $("lanes").scrollTop -= 60; }, ArrowDown: () => { $("lanes").scrollTop += 60; },
  n: () => step(1), p: () => step(-1), v: toViolation, k: onlyKey, "?": toggleHelp, Escape: clear,
  "/": () => $("filter").focus(),
};

document.addEventListener("keydown", (press) => {
  const typing = press.target === $("filter") && press.key !== "Escape";
  const inList = press.target === $("list") && press.key.startsWith("Arrow");
  if (typing || press.ctrlKey || press.metaKey || press.altKey) return;
  if (inList) {
    if (press.key === "ArrowDown" || press.key === "ArrowUp") {
      step(press.key === "ArrowDown" ? 1 : -1);
      press.preventDefault();
    }
  } else if (Object.hasOwn(KEYS, press.key)) {
    KEYS[press.key]();
    press.preventDefault();
  }
});

/** The time under a point of the canvas. */
function timeAt(px) {
  const { from, to } = state.time;
  return from + ((px - GUTTER) / (size().width - GUTTER)) * (to - from);
}

function listenToCanvas() {
  const canvas = $("canvas");
  let grip = null;
  const under = (event) => thingAt(state, event.offsetX, event.offsetY, size().width, $("lanes").scrollTop);
  canvas.addEventListener("pointerdown", (event) => {
    grip = { x: event.clientX, y: event.clientY, time: state.time, scroll: $("lanes").scrollTop, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!grip) return tip(under(event), event);
    const [dx, dy] = [event.clientX - grip.x, event.clientY - grip.y];
    grip.moved ||= Math.abs(dx) + Math.abs(dy) > 4;
    if (!grip.moved) return;
    canvas.classList.add("dragged");
    const perPixel = (grip.time.to - grip.time.from) / (size().width - GUTTER);
    state.time = moved(grip.time, model.end, -dx * perPixel);
    $("lanes").scrollTop = grip.scroll - dy;
    redraw();
  });
  canvas.addEventListener("pointerup", (event) => {
    if (grip && !grip.moved) click(event, under(event));
    grip = null;
    canvas.classList.remove("dragged");
  });
  canvas.addEventListener("pointerleave", () => { $("tip").hidden = true; });
  canvas.addEventListener("dblclick", (event) => zoom(0.35, timeAt(event.offsetX)));
  canvas.addEventListener("wheel", (event) => {
    if (event.ctrlKey || event.metaKey) {
      zoom(event.deltaY > 0 ? 1.25 : 0.8, timeAt(Math.max(GUTTER, event.offsetX)));
    } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey) {
      pan((event.deltaX || event.deltaY) / 1000);
    } else {
      return;
    }
    event.preventDefault();
  }, { passive: false });
}

function click(event, thing) {
  const y = event.offsetY - AXIS + $("lanes").scrollTop;
  const lane = event.offsetX < GUTTER && state.lanes.lanes.find((at) => y >= at.top && y < at.top + at.height);
  if (!lane) return select(thing, false);
  if (!state.opened.delete(lane.host)) state.opened.add(lane.host);
  relayout();
}

function tip(thing, event) {
  const box = $("tip");
  box.hidden = !thing;
  if (!thing) return;
  box.textContent = describe(thing).join("\n");
  const [right, below] = [event.clientX + 14, event.clientY + 14];
  box.style.left = `${Math.max(0, Math.min(right, innerWidth - box.offsetWidth - 8))}px`;
  box.style.top = `${below + box.offsetHeight < innerHeight ? below : event.clientY - box.offsetHeight - 10}px`;
}

function listenToOverview() {
  const overview = $("overview");
  const go = (event) => {
    if (!event.buttons) return;
    const at = ((event.offsetX - GUTTER) / (size().width - GUTTER)) * model.end;
    state.time = moved(state.time, model.end, at - (state.time.from + state.time.to) / 2);
    redraw();
  };
  overview.addEventListener("pointerdown", (event) => { overview.setPointerCapture(event.pointerId); go(event); });
  overview.addEventListener("pointermove", go);
}

function fillHeader() {
  $("name").textContent = model.name;
  $("replay").textContent = model.replay;
  $("summary").textContent = `${model.events.length} events in ${clock(model.end, 1000)}, ${model.plan.faults.length} faults by plan, trace hash ${model.trace_hash}`;
  $("verdict").textContent = model.violation ? `${model.violation.promise} violated` : "no violation";
  $("verdict").classList.toggle("bad", Boolean(model.violation));
  if (model.violation) {
    const { message, event, time_us: time, host, what, key } = model.violation;
    $("violation").hidden = false;
    $("message").textContent = message;
    $("to-violation").textContent = `Event ${event} at ${clock(time)} on ${host}`;
    $("what").textContent = what;
    $("show-history").textContent = `Only the history of ${key ?? host}: ${history.size} events`;
  }
  for (const kind of model.kinds) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = KINDS[kind];
    button.style.setProperty("--color", `var(--${kind})`);
    button.setAttribute("aria-pressed", "true");
    button.addEventListener("click", () => {
      if (!state.hidden.delete(kind)) state.hidden.add(kind);
      button.setAttribute("aria-pressed", String(!state.hidden.has(kind)));
      refilter();
    });
    $("kinds").append(button);
  }
  const words = [...model.hosts.map((host) => `host:${host}`), ...model.keys.map((key) => `key:${key}`)];
  $("words").append(...words.map((word) => Object.assign(document.createElement("option"), { value: word })));
}

function listen() {
  $("filter").addEventListener("input", refilter);
  $("in").addEventListener("click", () => zoom(0.6));
  $("out").addEventListener("click", () => zoom(1 / 0.6));
  $("fit").addEventListener("click", fit);
  $("help").addEventListener("click", toggleHelp);
  $("to-violation").addEventListener("click", toViolation);
  $("show-history").addEventListener("click", () => showHistory(!state.onlyHistory));
  $("copy").addEventListener("click", async () => {
    // A page from a file may not have the right to write the clipboard.
    await navigator.clipboard?.writeText(model.replay).then(() => { $("copy").textContent = "Copied"; }, () => {
      getSelection().selectAllChildren($("replay"));
    });
  });
  $("lanes").addEventListener("scroll", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    state.colours = readColours();
    redraw();
  });
  new ResizeObserver(() => { relayout(); relist(); }).observe($("left"));
  listenToCanvas();
  listenToOverview();
}

fillHeader();
refilter();
listen();
toViolation();
