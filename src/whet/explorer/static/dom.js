// Elements, always filled with text and never with markup.

export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "text") made.textContent = value;
    else if (name === "class") made.className = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "value") made.value = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  add(made, children);
  return made;
}

export function add(parent, children) {
  for (const child of children.flat(3)) {
    if (child === null || child === undefined || child === false) continue;
    parent.append(child);
  }
  return parent;
}

export function fill(parent, ...children) {
  parent.replaceChildren();
  return add(parent, children);
}

export function button(text, title, onclick, attributes = {}) {
  return el("button", { type: "button", text, title, "aria-label": title, onclick, ...attributes });
}

export function select(label, options, value, changed, attributes = {}) {
  const list = el("select", { "aria-label": label, onchange: () => changed(list.value), ...attributes });
  for (const [key, text] of options) list.append(el("option", { value: key, text }));
  list.value = value;
  return list;
}

export function labelled(text, control) {
  return el("label", { class: "labelled" }, el("span", { text }), control);
}

export function save(blob, name) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function csvCell(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "";
  let text = String(value);
  // A spreadsheet would take such text for a formula.
  if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export function saveCsv(rows, name) {
  const parts = [];
  for (let at = 0; at < rows.length; at += 10000) {
    parts.push(rows.slice(at, at + 10000).map((row) => `${row.map(csvCell).join(",")}\n`).join(""));
  }
  save(new Blob(parts, { type: "text/csv" }), name);
}

/** A chart's frame: a title, a line that says what it shows, and its exports. */
export function figure({ id, title, line, png, csv, tools = [] }) {
  const caption = el("p", { class: "line", text: line });
  const body = el("div", { class: "figure-body" });
  const exports = [
    png && button("PNG", `Save '${title}' as PNG`, () => png(), { class: "quiet", "data-export": "png" }),
    csv && button("CSV", `Save '${title}' as CSV`, () => csv(), { class: "quiet", "data-export": "csv" }),
  ];
  const root = el(
    "section",
    { class: "figure", id, "aria-label": title },
    el("header", {}, el("h2", { text: title }), el("div", { class: "tools" }, tools, exports)),
    caption,
    body,
  );
  return { root, body, caption };
}

let tipElement = null;

/** Beside the pointer, or beside whatever has the keyboard's focus. */
export function showTip(x, y, lines) {
  if (!tipElement) {
    tipElement = el("div", { id: "tip", role: "tooltip" });
    document.body.append(tipElement);
  }
  fill(
    tipElement,
    lines.filter(Boolean).map((one) =>
      Array.isArray(one)
        ? el("div", { class: "tip-row" }, el("span", { text: one[0] }), el("b", { text: one[1] }))
        : el("div", { class: "tip-head", text: one }),
    ),
  );
  tipElement.hidden = false;
  const box = tipElement.getBoundingClientRect();
  const left = x + 14 + box.width > innerWidth ? x - box.width - 14 : x + 14;
  const top = Math.min(y + 14, innerHeight - box.height - 4);
  tipElement.style.left = `${Math.max(4, left)}px`;
  tipElement.style.top = `${Math.max(4, top)}px`;
}

export function hideTip() {
  if (tipElement) tipElement.hidden = true;
}

export function note(text, kind = "empty") {
  return el("p", { class: `note ${kind}`, role: kind === "bad" ? "alert" : "status", text });
}
