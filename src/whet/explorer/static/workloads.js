// Every kernel, key and device in the store.

import { SERIES } from "./colors.js";
import { button, el, figure, fill, note, saveCsv } from "./dom.js";
import { configText, counted, digits, isMeasured, keyText, nanoseconds, percent, seconds, statusText } from "./format.js";

const MOST_SHOWN = 300;

const COLUMNS_SHOWN = [
  ["kernel", "kernel", (w) => w.kernel],
  ["key", "key", keyText],
  ["device", "device", (w) => w.device],
  ["best", "best", (w) => (w.best ? w.best.ns : Infinity)],
  ["speedup", "over first", (w) => -(w.speedup || 0)],
  ["typical", "over typical", (w) => -(w.typical_ns && w.best ? w.typical_ns / w.best.ns : 0)],
  ["roofline", "of roofline", (w) => -(w.roofline_ns && w.best ? w.roofline_ns / w.best.ns : 0)],
  ["trials", "trials by outcome", (w) => -w.total],
  ["cost", "cost", (w) => -w.cost_s],
  ["exact", "result", (w) => (w.exact === true ? 0 : 1)],
];

export class WorkloadsView {
  constructor(app, root) {
    this.app = app;
    this.sorted = null;
    this.filter = "";
    this.frame = figure({
      id: "workloads",
      title: "Workloads",
      line: "One row for every kernel, key and device that was tuned: its best time, what tuning gained, what failed, and what it cost. Click one to look at its space.",
      csv: () => this.csv(),
      tools: [
        el("input", {
          type: "search",
          placeholder: "Filter",
          "aria-label": "Filter workloads",
          id: "workload-filter",
          oninput: (event) => {
            this.filter = event.target.value.toLowerCase();
            this.render();
          },
        }),
      ],
    });
    root.append(this.frame.root);
  }

  /** Without those that no workload has anything for. */
  columns() {
    const { workloads } = this.app;
    const lacking = {
      speedup: !workloads.some((w) => w.speedup),
      typical: !workloads.some((w) => w.typical_ns),
      roofline: !workloads.some((w) => w.roofline_ns),
    };
    return COLUMNS_SHOWN.filter(([name]) => !lacking[name]);
  }

  listed() {
    const all = this.app.workloads.filter((w) => `${w.kernel} ${keyText(w)} ${w.device}`.toLowerCase().includes(this.filter));
    if (!this.sorted) return all;
    const value = COLUMNS_SHOWN.find(([name]) => name === this.sorted)[2];
    return [...all].sort((a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0));
  }

  render() {
    const { app } = this;
    if (!app.workloads.length) {
      fill(
        this.frame.body,
        note("The store is empty. Tune something and it appears here, while it runs:", "empty"),
        el("pre", { text: "whet demo            tune a matrix product on this machine\nwhet explore --sample    look at measurements of an H200" }),
      );
      return;
    }
    const shown = this.listed();
    const head = this.columns().map(([name, text]) =>
      el("th", { "aria-sort": this.sorted === name ? "ascending" : undefined }, button(text, `Sort by ${text}`, () => {
        this.sorted = this.sorted === name ? null : name;
        this.render();
      }, { class: "plain" })),
    );
    fill(
      this.frame.body,
      this.legend(),
      el(
        "div",
        { class: "scroll tall", tabindex: "0", "aria-label": "workloads" },
        el("table", { class: "rows workloads" }, el("thead", {}, el("tr", {}, head)), el("tbody", {}, shown.slice(0, MOST_SHOWN).map((w) => this.row(w)))),
      ),
      shown.length > MOST_SHOWN && note(`${counted(shown.length - MOST_SHOWN)} more: filter to find them.`, "soft"),
    );
  }

  statuses() {
    const names = new Set();
    for (const w of this.app.workloads) for (const status of Object.keys(w.trials || {})) names.add(status);
    return [...names].sort((a, b) => isMeasured(b) - isMeasured(a) || (a < b ? -1 : 1));
  }

  color(status) {
    const at = this.statuses().indexOf(status);
    return status === "ok" ? SERIES[2] : SERIES[[1, 5, 3, 6, 4, 7, 0][(at + 6) % 7]];
  }

  legend() {
    return el("div", { class: "legend" }, this.statuses().map((status) => {
      const box = el("i", { class: "swatch" });
      box.style.background = this.color(status);
      return el("span", {}, box, statusText(status));
    }));
  }

  row(w) {
    const { app } = this;
    const open = () => app.state.set({ w: w.id, view: "space" });
    const best = w.best && w.best.ns !== null ? w.best : null;
    const cells = {
      kernel: el("td", {}, el("b", { text: w.kernel })),
      key: el("td", { text: keyText(w) }),
      device: el("td", { text: w.device, title: [w.arch, w.toolchain && valueLine(w.toolchain)].filter(Boolean).join(" · ") }),
      best: el("td", { class: "number", title: best ? configText(best.config) : "", text: best ? nanoseconds(best.ns) : "–" }),
      speedup: el("td", { class: "number", title: w.paired ? "measured in alternation" : "", text: w.speedup ? `${digits(w.speedup)}×` : "–" }),
      typical: el("td", { class: "number", text: best && w.typical_ns ? `${digits(w.typical_ns / best.ns)}×` : "–" }),
      roofline: el("td", { class: "number" }, best && w.roofline_ns ? meter(w.roofline_ns / best.ns) : "–"),
      trials: el("td", {}, this.bar(w)),
      cost: el("td", { class: "number", text: seconds(w.cost_s) }),
      exact: el("td", { text: w.exact === true ? "exact" : "inherited", title: w.exact === true ? "" : `from ${w.exact && w.exact.inherited_from}` }),
    };
    return el(
      "tr",
      {
        tabindex: "0",
        class: app.state.now.w === w.id ? "chosen" : undefined,
        "data-workload-row": w.id,
        onclick: open,
        onkeydown: (event) => event.key === "Enter" && open(),
      },
      this.columns().map(([name]) => cells[name]),
    );
  }

  bar(w) {
    const title = this.statuses().filter((s) => w.trials && w.trials[s]).map((s) => `${counted(w.trials[s])} ${statusText(s)}`).join(", ");
    const made = el("div", { class: "stack", title, role: "img", "aria-label": title });
    for (const status of this.statuses()) {
      const n = (w.trials || {})[status];
      if (!n) continue;
      const part = el("i");
      part.style.width = `${(100 * n) / w.total}%`;
      part.style.background = this.color(status);
      made.append(part);
    }
    return el("div", { class: "stacked" }, made, el("span", { text: counted(w.total) }));
  }

  csv() {
    const rows = [["id", "kernel", "key", "device", "best_ns", "best_config", "speedup", "roofline_share", "trials", "cost_s", "result"]];
    for (const w of this.app.workloads) {
      const best = w.best || {};
      rows.push([w.id, w.kernel, keyText(w), w.device, best.ns, configText(best.config), w.speedup, w.roofline_ns / best.ns, w.total, w.cost_s, w.exact === true ? "exact" : "inherited"]);
    }
    saveCsv(rows, "workloads.csv");
  }
}

const valueLine = (value) => (typeof value === "string" ? value : configText(value));

function meter(share) {
  const made = el("div", { class: "meter" }, el("i"), el("span", { text: percent(share, 2) }));
  made.firstChild.style.width = `${Math.min(100, 100 * share)}%`;
  return made;
}
