// The list of events: only the rows in sight are in the document, however many there are.

const LINE = 20;

/** A list in `box`; `choose` is called with the event that is clicked. */
function makeList(box, choose) {
  let events = [];
  let look = () => ({});
  const inner = document.createElement("div");
  box.append(inner);
  box.addEventListener("scroll", () => render());
  inner.addEventListener("click", (click) => {
    const row = click.target.closest(".row");
    if (row) choose(events[Number(row.dataset.index)]);
  });

  function render() {
    const first = Math.max(0, Math.floor(box.scrollTop / LINE) - 5);
    const last = Math.min(events.length, first + Math.ceil(box.clientHeight / LINE) + 10);
    inner.style.height = `${events.length * LINE}px`;
    inner.replaceChildren(...events.slice(first, last).map((event, n) => row(event, first + n)));
    const chosen = inner.querySelector('[aria-selected="true"]');
    if (chosen) box.setAttribute("aria-activedescendant", chosen.id);
    else box.removeAttribute("aria-activedescendant");
  }

  function row(event, index) {
    const { selected, history, broken } = look(event);
    const line = document.createElement("div");
    line.className = `row${history ? " history" : ""}${broken ? " broken" : ""}`;
    line.id = `event-${event.number}`;
    line.dataset.index = index;
    line.style.top = `${index * LINE}px`;
    line.title = event.text;
    line.setAttribute("role", "option");
    line.setAttribute("aria-selected", String(Boolean(selected)));
    line.setAttribute("aria-posinset", index + 1);
    line.setAttribute("aria-setsize", events.length);
    const time = document.createElement("span");
    time.className = "time";
    time.textContent = `${String(event.number).padStart(6)} ${(event.time / 1e6).toFixed(6)} `;
    const words = document.createElement("span");
    words.className = event.tone === "bad" ? "bad" : "";
    words.textContent = `${event.host.padEnd(9)} ${event.text}`;
    line.append(time, words);
    return line;
  }

  return {
    /** Shows these events; `how` tells what is special about one. */
    show(shownEvents, how) {
      [events, look] = [shownEvents, how];
      render();
    },
    /** Scrolls an event into sight. */
    reveal(event) {
      const index = events.indexOf(event);
      if (index < 0) return;
      const top = index * LINE;
      if (top < box.scrollTop || top + LINE > box.scrollTop + box.clientHeight) {
        box.scrollTop = Math.max(0, top - box.clientHeight / 2);
      }
      render();
    },
  };
}
