// Building blocks of the page. Text from the fleet only ever becomes text nodes: labels may hold anything.

/** el("td", {class: "number"}, "12", node): children that are null, false or "" are left out. */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child || child === 0));
  return node;
}

/** Replace what a place shows, only if it differs: selections and scrolling stay. */
export function show(id, ...children) {
  const place = document.getElementById(id);
  const next = place.cloneNode(false);
  next.append(...children.flat(Infinity).filter(Boolean));
  if (!place.isEqualNode(next)) place.replaceChildren(...next.childNodes);
}

/** columns: [[title, class]], rows: [[cell, ...]]; a cell is text, a node or a list of both. */
export function table(columns, rows) {
  const head = el("tr", {}, columns.map(([title, kind]) => el("th", {class: heading(kind), scope: "col"}, title)));
  const body = rows.map((cells) =>
    el("tr", {}, cells.map((cell, index) => {
      const [title, kind] = columns[index];
      return el("td", {class: kind || null, "data-name": (kind || "").includes("named") ? title : null}, cell);
    })));
  return el("table", {class: "stack"}, el("thead", {}, head), el("tbody", {}, body));
}

const heading = (kind) => ((kind || "").includes("number") ? "number" : null);

export const empty = (text) => el("p", {class: "empty"}, text);
export const soft = (text) => el("div", {class: "soft"}, text);
export const chip = (text, kind = "", title = null) => el("span", {class: `chip ${kind}`.trim(), title}, text);

/** parts: [[class, amount, title]]; widths are shares of `whole`. */
export function bar(parts, whole) {
  const segments = parts.filter(([, amount]) => amount > 0).map(([kind, amount, title]) => {
    const part = el("i", {class: kind, title});
    part.style.width = `${Math.min(100, (100 * amount) / (whole || 1))}%`;
    return part;
  });
  return el("div", {class: "bar", "aria-hidden": "true"}, segments);
}

// ---- how values read ---------------------------------------------------------------------------------------

export function span(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

export const age = (then, now) => (then ? span((Date.parse(now) - Date.parse(then)) / 1000) : "");
export const ahead = (then, now) => (then ? `in ${span((Date.parse(then) - Date.parse(now)) / 1000)}` : "");
export const date = (text) => new Date(text).toLocaleDateString(undefined, {day: "numeric", month: "short", year: "numeric"});
export const clock = (text) => new Date(text).toLocaleTimeString(undefined, {hour: "2-digit", minute: "2-digit", second: "2-digit"});

/** For people: whole dollars when there are many, more places for little. */
export function usd(text) {
  const value = Number(text);
  const places = Math.abs(value) >= 10000 ? 0 : Math.abs(value) >= 0.1 || !value ? 2 : 4;
  return `$${value.toLocaleString("en-US", {minimumFractionDigits: places, maximumFractionDigits: places})}`;
}

export function hourly(text) {
  if (text === null) return "";
  return Number(text) ? `$${Number(text).toFixed(4).replace(/0$/, "")}` : "free";
}

/** `aws/us-east-1a/c5.large spot`; on-demand goes without saying. */
export const offerName = (name) => name.replace("/on_demand", "").replace("/spot", " spot");
