// Uses the page as a person would, and leaves what it found in the document. `ci/page` puts it at the end of a page.
(() => {
  const results = [];
  const wrongs = [];
  addEventListener("error", (error) => wrongs.push(error.message));
  const check = (name, test) => {
    try {
      const wrong = test();
      results.push([name, wrong === true ? null : String(wrong)]);
    } catch (error) {
      results.push([name, `${error}`]);
    }
  };
  const press = (key, on = document.body) => on.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  const length = () => state.time.to - state.time.from;
  const filter = (text) => { $("filter").value = text; $("filter").dispatchEvent(new Event("input")); };
  const rows = () => [...document.querySelectorAll("#list .row")];
  const frame = () => { draw(state, $("canvas"), size().width, size().height, 0); };
  const pixels = () => new Set(new Uint32Array(
    $("canvas").getContext("2d").getImageData(0, 0, $("canvas").width, $("canvas").height).data.buffer)).size;

  check("more than 10 000 events", () => model.events.length > 10_000 || model.events.length);
  check("every host has a lane", () => model.hosts.every((host) => state.lanes.lanes.some((lane) => lane.host === host))
    || state.lanes.lanes.map((lane) => lane.host));
  check("the picture has colours", () => { frame(); return pixels() > 20 || pixels(); });
  check("a frame takes less than 50 ms", () => {
    const started = performance.now();
    for (let n = 0; n < 10; n += 1) { frame(); $("canvas").getContext("2d").getImageData(0, 0, 1, 1); }
    const each = (performance.now() - started) / 10;
    return each < 50 || `${each} ms`;
  });
  check("a filter takes less than 200 ms", () => {
    const started = performance.now();
    filter("item");
    const took = performance.now() - started;
    filter("");
    return took < 200 || `${took} ms`;
  });
  check("only rows in sight are in the document", () => rows().length > 5 && rows().length < 200 || rows().length);
  check("keys zoom and move", () => {
    press("0");
    const whole = length();
    press("+");
    const closer = length();
    const from = state.time.from;
    press("ArrowRight");
    const right = state.time.from;
    press("0");
    return whole === model.end && closer < whole && right > from && length() === whole || [whole, closer, from, right];
  });
  check("the next event is selected and told", () => {
    press("Escape");
    press("n");
    press("n");
    const told = $("details").textContent;
    return rows().some((row) => row.getAttribute("aria-selected") === "true" && row.id === "event-2")
      && told.includes(model.events[1].text) || told;
  });
  check("a key is filtered", () => {
    const key = model.keys[0];
    filter(`key:${key}`);
    const others = state.view.events.filter((event) => event.key !== key).length
      + state.view.spans.filter((span) => span.key !== key).length;
    const left = state.view.events.length;
    filter("");
    return others === 0 && left > 0 && left < model.events.length || [others, left];
  });
  check("a host is filtered", () => {
    filter("host:encoder0");
    const lanes = state.lanes.lanes.map((lane) => lane.host);
    filter("");
    return lanes.length === 1 && lanes[0] === "encoder0" || lanes;
  });
  check("a kind is hidden and comes back", () => {
    const all = state.view.spans.length;
    const saves = [...$("kinds").children].find((button) => button.textContent === "saves");
    saves.click();
    const left = state.view.spans.filter((span) => span.kind === "save").length;
    saves.click();
    return left === 0 && state.view.spans.length === all || left;
  });
  check("a span is found under the pointer and described", () => {
    press("0");
    const span = state.view.spans.find((candidate) => candidate.end - candidate.start > model.end / 10);
    const { width } = size();
    const x = GUTTER + (((span.start + span.end) / 2) / model.end) * (width - GUTTER);
    const found = thingAt(state, x, span.y + AXIS + 1, width, 0);
    const lines = found ? describe(found) : [];
    return found && found.host === span.host && lines.length >= 2 || lines;
  });
  check("rows of parallel spans do not overlap", () => {
    const spans = [...state.view.spans].sort((a, b) => a.start - b.start);
    const free = new Map();
    for (const span of spans) {
      const row = `${span.y}`;
      if ((free.get(row) ?? 0) > span.start) return `${span.kind} ${span.name}`;
      free.set(row, span.end);
    }
    return true;
  });
  check("the command is shown", () => $("replay").textContent.startsWith("./ci/just sim --trace --plan ") || $("replay").textContent);
  check("nothing went wrong on the way", () => wrongs.length === 0 || wrongs);

  const left = document.createElement("script");
  left.type = "application/json";
  left.id = "results";
  left.textContent = JSON.stringify(results).replaceAll("<", "\\u003c");
  document.body.append(left);
})();
