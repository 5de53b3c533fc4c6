// The same kernel on two devices, keys or commits: which configs keep their place, which do not.

import { SERIES } from "./colors.js";
import { Dataset } from "./dataset.js";
import { el, figure, fill, labelled, note, saveCsv, select } from "./dom.js";
import { configText, counted, digits, keyText, nanoseconds, percent, plural, workloadText } from "./format.js";
import { Plot } from "./plot.js";

const MOST_DRAWN = 20000;
const LISTED = 8;

/** Rows of the same config in both: [row of a, row of b]. */
export function sharedRows(a, b) {
  const names = a.parameters.map((one) => one.name);
  if (b.parameters.length !== names.length || !names.every((name) => b.parameter(name))) {
    const common = names.filter((name) => b.parameter(name));
    const constant = (ds) => ds.parameters.filter((one) => !common.includes(one.name)).every((one) => one.values.length < 2);
    if (!common.length || !constant(a) || !constant(b)) return [];
  }
  const shared = a.parameters.filter((one) => b.parameter(one.name));
  // A config is one number: its codes in a, digit by digit; -1 where a does not know b's value.
  const maps = shared.map((one) => {
    const places = new Map(one.labels.map((text, i) => [text, i]));
    return b.parameter(one.name).labels.map((text) => (places.has(text) ? places.get(text) : -1));
  });
  const known = new Map();
  for (let row = 0; row < a.rows; row++) {
    if (!(a.usable[row] >= 0)) continue;
    let key = 0;
    for (const one of shared) key = key * one.values.length + one.codes[row];
    known.set(key, row);
  }
  const pairs = [];
  const theirs = shared.map((one) => b.parameter(one.name).codes);
  rows: for (let row = 0; row < b.rows; row++) {
    if (!(b.usable[row] >= 0)) continue;
    let key = 0;
    for (let p = 0; p < shared.length; p++) {
      const code = maps[p][theirs[p][row]];
      if (code < 0) continue rows;
      key = key * shared[p].values.length + code;
    }
    if (known.has(key)) pairs.push([known.get(key), row]);
  }
  return pairs;
}

/** Places among the shared configs, 1 for the fastest. */
export function sharedPlaces(pairs, side, usable) {
  const order = pairs.map((_, i) => i).sort((p, q) => usable[pairs[p][side]] - usable[pairs[q][side]]);
  const places = new Float64Array(pairs.length);
  order.forEach((i, place) => (places[i] = place + 1));
  return places;
}

function correlation(a, b) {
  const n = a.length;
  if (n < 3) return NaN;
  let sum = 0;
  for (let i = 0; i < n; i++) sum += (a[i] - b[i]) ** 2;
  return 1 - (6 * sum) / (n * (n * n - 1));
}

export class CompareView {
  constructor(app, root) {
    this.app = app;
    this.frame = figure({
      id: "compare",
      title: "Compare",
      line: "",
      png: () => this.plot.png("compare"),
      csv: () => this.csv(),
      tools: [(this.tools = el("div", { class: "controls" }))],
    });
    this.holder = el("div");
    this.words = el("div", { id: "compare-words" });
    this.lists = el("div");
    this.frame.body.append(this.words, this.holder, this.lists);
    this.plot = new Plot(this.holder, {
      height: 330,
      label: "places of shared configs on both sides; arrow keys read values",
      tip: (one, i) => this.tipOf(one, i),
      clicked: (one, i) => one.pairs && app.state.set({ row: this.pairs[one.pairs[i]][0], view: "trial" }),
      ranged: (low, high) => this.ranged(low, high),
    });
    root.append(this.frame.root);
  }

  /** Others of the same kernel first, then everything else. */
  others() {
    const { workload, workloads } = this.app;
    const rest = workloads.filter((one) => one.id !== workload.id);
    return [...rest.filter((one) => one.kernel === workload.kernel), ...rest.filter((one) => one.kernel !== workload.kernel)];
  }

  render(changed) {
    const { app } = this;
    if (!app.ds) return;
    const others = this.others();
    if (!others.length) {
      fill(this.tools);
      fill(this.words, note("There is only one workload, so there is nothing to compare it with."));
      this.holder.hidden = true;
      fill(this.lists);
      return;
    }
    const other = others.find((one) => one.id === app.state.now.b) || others[0];
    fill(
      this.tools,
      labelled("with", select("the other workload", others.map((one) => [one.id, workloadText(one)]), other.id, (b) => app.state.set({ b }), { id: "compare-b" })),
    );
    const key = `${app.workload.id}|${other.id}|${app.ds.rows}`;
    if (this.key0 !== key) this.read(other, key);
    else if (this.pairs && (!changed || ["brush", "theme", "size", "data", "view"].some((one) => changed.has(one)))) this.draw(other);
  }

  async read(other, key) {
    const { app } = this;
    const { workload } = app;
    this.key0 = key;
    this.pairs = null;
    fill(this.words, note("Reading the other workload…"));
    let ds;
    try {
      ds = new Dataset(await app.source.columns(other.id));
      while (!ds.complete) ds.append(await app.source.columns(other.id, ds.rows));
    } catch (error) {
      fill(this.words, note(error.message, "bad"));
      return;
    }
    if (app.workload !== workload || this.key0 !== key) return;
    this.other = ds;
    this.pairs = sharedRows(app.ds, ds);
    this.places = [sharedPlaces(this.pairs, 0, app.ds.usable), sharedPlaces(this.pairs, 1, ds.usable)];
    this.draw(other);
  }

  draw(other) {
    const { app, pairs, places } = this;
    const { ds, workload } = app;
    this.holder.hidden = !pairs.length;
    if (!pairs.length) {
      fill(this.words, note("The two have no measured config in common."));
      fill(this.lists);
      return;
    }
    const { mask } = app.selection();
    const inside = [];
    const outside = [];
    const every = Math.ceil(pairs.length / MOST_DRAWN);
    for (let i = 0; i < pairs.length; i += every) (mask[pairs[i][0]] ? inside : outside).push(i);
    const points = (list, more) => ({ kind: "points", x: list.map((i) => places[0][i]), y: list.map((i) => places[1][i]), pairs: list, ...more });
    const bests = [this.placeOf(ds.best, 0), this.placeOf(this.other.best, 1)].filter((i) => i >= 0);
    this.plot.update({
      series: [
        points(outside, { name: "not selected", color: SERIES[7], alpha: 0.25, size: 2, faint: true }),
        points(inside, { name: "shared configs", color: SERIES[0], alpha: 0.6, size: 2.6 }),
        points(bests, { name: "the best of either", color: SERIES[1], size: 6 }),
        { name: "the same place on both", kind: "line", x: [1, pairs.length], y: [1, pairs.length], color: SERIES[7], dash: [5, 4], width: 1, faint: true },
      ],
      x: { label: `place on ${this.name(workload, other)}`, low: 0, show: counted },
      y: { label: `place on ${this.name(other, workload)}`, low: 0, show: counted },
    });
    this.frame.caption.textContent = "Every dot is a config measured on both, by its place on either side: on the dashed line it keeps its place, far from it the two disagree. Drag to select configs by their place.";
    this.drawWords(other);
    this.drawLists(other);
  }

  /** What tells the two apart: the device, else the key, else where it comes from. */
  name(one, other) {
    if (one.device !== other.device) return one.device;
    if (keyText(one) !== keyText(other)) return keyText(one);
    return one.commit || one.fingerprint?.slice(0, 8) || one.source_where || one.id;
  }

  placeOf(row, side) {
    return this.pairs.findIndex((pair) => pair[side] === row);
  }

  drawWords(other) {
    const { app, pairs, places } = this;
    const { ds, workload } = app;
    const rho = correlation(places[0], places[1]);
    const [here, there] = [this.name(workload, other), this.name(other, workload)];
    const texts = [`${plural(pairs.length, "config")} measured on both; rank correlation ${digits(rho, 2)}: ${rho > 0.9 ? "mostly the same order" : rho > 0.6 ? "a similar order, with exceptions" : "a different order"}.`];
    const mine = this.placeOf(ds.best, 0);
    const theirs = this.placeOf(this.other.best, 1);
    if (mine >= 0) texts.push(this.moveText("best", here, there, this.other, mine, 1));
    if (theirs >= 0 && theirs !== mine) texts.push(this.moveText("best", there, here, ds, theirs, 0));
    fill(this.words, texts.map((text) => el("p", { class: "fact", text })));
  }

  moveText(what, here, there, ds, at, side) {
    const row = this.pairs[at][side];
    const share = ds.usable[ds.best] / ds.usable[row];
    return `The ${what} of ${here} is place ${counted(this.places[side][at])} on ${there}: ${percent(share)} of the best speed there.`;
  }

  drawLists(other) {
    const { app, pairs, places } = this;
    const { ds, workload } = app;
    const { mask } = app.selection();
    const gains = pairs.map((pair, i) => [i, places[0][i] - places[1][i]]).filter(([i]) => mask[pairs[i][0]]);
    const list = (title, sorted) =>
      el(
        "div",
        {},
        el("h3", { text: title }),
        el("table", { class: "rows" }, el("thead", {}, el("tr", {}, ["config", "place here", "place there", "time here", "time there"].map((text) => el("th", { text })))), el("tbody", {}, sorted.slice(0, LISTED).map(([i]) => {
          const [a, b] = pairs[i];
          const open = () => app.state.set({ row: a, view: "trial" });
          return el("tr", { tabindex: "0", onclick: open, onkeydown: (event) => event.key === "Enter" && open() }, el("td", { title: configText(ds.config(a)), text: configText(varied(ds, a)) }), [counted(places[0][i]), counted(places[1][i]), nanoseconds(ds.usable[a]), nanoseconds(this.other.usable[b])].map((text) => el("td", { class: "number", text })));
        }))),
      );
    fill(
      this.lists,
      list(`Better on ${this.name(other, workload)}`, [...gains].sort((p, q) => q[1] - p[1])),
      list(`Better on ${this.name(workload, other)}`, [...gains].sort((p, q) => p[1] - q[1])),
    );
  }

  ranged(low, high) {
    const { ds } = this.app;
    const inside = this.pairs.filter((_, i) => this.places[0][i] >= low && this.places[0][i] <= high).map((pair) => ds.usable[pair[0]]);
    if (inside.length) this.app.brush("median_ns", [`${Math.min(...inside) * (1 - 1e-6)}..${Math.max(...inside) * (1 + 1e-6)}`]);
  }

  tipOf(one, i) {
    if (!one.pairs) return [one.name];
    const at = one.pairs[i];
    const [a, b] = this.pairs[at];
    const { ds } = this.app;
    return [configText(ds.config(a)), ["here", `place ${counted(this.places[0][at])}, ${nanoseconds(ds.usable[a])}`], ["there", `place ${counted(this.places[1][at])}, ${nanoseconds(this.other.usable[b])}`]];
  }

  csv() {
    if (!this.pairs) return;
    const { ds } = this.app;
    const rows = this.pairs.map(([a, b], i) => [configText(ds.config(a)), this.places[0][i], this.places[1][i], ds.usable[a], this.other.usable[b]]);
    saveCsv([["config", "place_here", "place_there", "ns_here", "ns_there"], ...rows], "compare.csv");
  }
}

function varied(ds, row) {
  return Object.fromEntries(ds.parameters.filter((one) => one.values.length > 1).map((one) => [one.name, one.values[one.codes[row]]]));
}
