// The space: a heat map of two parameters, all of them as parallel coordinates, and what matters.

import { Bars } from "./bars.js";
import { rgb, viridis } from "./colors.js";
import { CLASSES, CLASS_NAMES } from "./dataset.js";
import { button, el, figure, fill, labelled, note, saveCsv, select } from "./dom.js";
import { UNITS, counted, inUnit, percent, plural, statusGlyph, statusText, unitOf } from "./format.js";
import { HeatMap } from "./heat.js";
import { Parallel, axisName, classColor } from "./parallel.js";
import { timed } from "./timings.js";

const BEST_SHARES = [1, 5, 10, 25];
const MOST_AXES = 8;

/** The two axes of the heat map: those asked for, or the two that matter most. */
export function heatAxes(app) {
  const { ds, state, importance } = app;
  const varied = ds.parameters.filter((one) => one.values.length > 1 && one.values.length <= 64);
  const known = varied.length >= 2 ? varied : ds.parameters;
  const ranked = (importance || []).map((one) => one.parameter).filter((name) => known.some((one) => one.name === name));
  const pool = [...new Set([...ranked, ...known.map((one) => one.name)])];
  const has = (name) => name && ds.parameter(name);
  const x = has(state.now.x) ? state.now.x : pool.find((name) => name !== state.now.y);
  const y = has(state.now.y) && state.now.y !== x ? state.now.y : pool.find((name) => name !== x);
  return { x, y: y || x };
}

/** Entries of the parallel coordinates: those asked for, or parameters that vary, then time. */
export function parallelEntries(app) {
  const { ds, state } = app;
  const asked = state.now.axes.filter((entry) => ds.axes.has(axisName(entry)));
  if (asked.length > 1) return asked;
  const varied = ds.parameters.filter((one) => one.values.length > 1).map((one) => one.name);
  return [...varied.slice(0, MOST_AXES - 1), ...(ds.axes.has("median_ns") ? ["median_ns"] : ["status"])];
}

export function usesLog(app) {
  const { ds, state } = app;
  if (state.now.log !== null) return state.now.log === "1";
  const axis = ds.axes.get("median_ns");
  return Boolean(axis && axis.high > 10 * axis.low);
}

export class SpaceView {
  constructor(app, root) {
    this.app = app;
    this.root = root;
    this.heatFrame = figure({
      id: "heat",
      title: "Heat map",
      line: "",
      png: () => this.heat.png("heat-map"),
      csv: () => this.heat.csv("heat-map"),
      tools: [(this.heatTools = el("div", { class: "controls" }))],
    });
    this.heatHolder = el("div");
    this.legend = el("div", { class: "legend", id: "heat-legend" });
    this.heatFrame.body.append(this.heatHolder, this.legend);
    this.controls = figure({
      id: "parameters",
      title: "Parameters",
      line: "'any' shows the best or the median config over that parameter; a value holds it.",
    });
    this.controls.root.append((this.readout = el("dl", { class: "readout", id: "readout" })));
    this.linesFrame = figure({
      id: "parallel",
      title: "All parameters at once",
      line: "Every trial runs from left to right through its values; brighter is faster, the widest ribbons hold most trials. Drag along an axis to keep only those trials; drag a title to move it.",
      png: () => this.lines.png("parallel-coordinates"),
      csv: () => this.lines.csv("parallel-coordinates"),
      tools: [(this.lineTools = el("div", { class: "controls" }))],
    });
    this.importanceFrame = figure({
      id: "importance",
      title: "What matters",
      line: "The share of the differences in time that each parameter explains: dark by itself, with its 95 % interval, light together with others. Click one to make it the heat map's x axis.",
      png: () => this.bars.png("importance"),
      csv: () => this.importanceCsv(),
    });
    root.append(
      el("div", { class: "split" }, this.heatFrame.root, this.controls.root),
      this.linesFrame.root,
      this.importanceFrame.root,
    );
    this.heat = new HeatMap(this.heatHolder, {
      height: 330,
      label: "heat map of two parameters; arrow keys move, Enter opens the config",
      picked: (x, y, row) => this.pick(x, y, row),
      boxed: (xs, ys) => this.box(xs, ys),
      moved: (dx, dy) => this.step(dx, dy),
    });
    this.lines = new Parallel(this.linesFrame.body, {
      height: 290,
      brushed: (name, wanted, draft) => app.brush(name, wanted, draft),
      ordered: (axes) => app.state.set({ axes }),
    });
    this.linesFrame.body.append((this.lineLegend = el("div", { class: "legend" })));
    this.bars = new Bars(this.importanceFrame.body, { label: "parameter importance", clicked: (one) => this.chooseX(one.name) });
  }

  pick(x, y, row) {
    const { ds } = this.app;
    const axes = heatAxes(this.app);
    const at = JSON.stringify([ds.parameter(axes.x).labels[x], ds.parameter(axes.y).labels[y]]);
    this.app.state.set({ at, row: row >= 0 ? row : null });
  }

  box([x0, x1], [y0, y1]) {
    const { ds, state } = this.app;
    const { x, y } = heatAxes(this.app);
    const brush = { ...state.now.brush };
    brush[x] = ds.parameter(x).labels.slice(x0, x1 + 1);
    brush[y] = ds.parameter(y).labels.slice(y0, y1 + 1);
    state.set({ brush });
  }

  current() {
    const { ds, state } = this.app;
    const { x, y } = heatAxes(this.app);
    const [across, down] = [ds.parameter(x), ds.parameter(y)];
    let labels = null;
    try {
      labels = JSON.parse(state.now.at);
    } catch {
      // A link that was edited by hand: fall back to the best.
    }
    if (Array.isArray(labels)) {
      const cell = [across.labels.indexOf(labels[0]), down.labels.indexOf(labels[1])];
      if (cell[0] >= 0 && cell[1] >= 0) return cell;
    }
    return ds.best >= 0 ? [across.codes[ds.best], down.codes[ds.best]] : [0, 0];
  }

  step(dx, dy) {
    const { ds } = this.app;
    const { x, y } = heatAxes(this.app);
    const [cx, cy] = this.current();
    const clamp = (at, values) => Math.max(0, Math.min(values.length - 1, at));
    this.setCurrent(clamp(cx + dx, ds.parameter(x).values), clamp(cy + dy, ds.parameter(y).values));
  }

  setCurrent(cx, cy) {
    const { ds, state } = this.app;
    const { x, y } = heatAxes(this.app);
    state.set({ at: JSON.stringify([ds.parameter(x).labels[cx], ds.parameter(y).labels[cy]]) });
  }

  key(event) {
    const { app } = this;
    const acts = {
      b: () => this.nextBest(),
      l: () => app.state.set({ log: usesLog(app) ? "0" : "1" }),
      u: () => app.state.undo(),
      c: () => app.state.set({ brush: {} }),
      m: () => app.state.set({ reduce: app.state.now.reduce === "median" ? "best" : "median" }),
    };
    if (event.ctrlKey && event.key === "z") {
      app.state.undo();
      return true;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || !acts[event.key]) return false;
    acts[event.key]();
    return true;
  }

  /** 1, 5, 10, 25 %, then all again. */
  nextBest() {
    const { ds } = this.app;
    const at = BEST_SHARES.findIndex((share) => this.isBest(share));
    const next = BEST_SHARES[at + 1];
    if (at === BEST_SHARES.length - 1) this.app.brush("median_ns", null);
    else this.setBest(next);
    return ds;
  }

  bestEnd(share) {
    // Rounded up, so that the config at the border is in.
    const time = this.app.ds.timeAt(share / 100);
    return `..${Number((time * (1 + 1e-6)).toPrecision(7))}`;
  }

  isBest(share) {
    const brush = this.app.state.now.brush.median_ns;
    return Boolean(brush && brush[0] === this.bestEnd(share));
  }

  setBest(share) {
    if (Number.isFinite(share) && share > 0) this.app.brush("median_ns", [this.bestEnd(Math.min(100, share))]);
  }

  render(changed) {
    const { app } = this;
    const { ds } = app;
    this.root.classList.toggle("without", !ds);
    if (!ds) return;
    const any = (...keys) => !changed || keys.some((key) => changed.has(key)) || changed.has("data");
    if (ds.parameters.length < 1 || !ds.rows) {
      fill(this.heatTools);
      this.heatFrame.caption.textContent = "No trials yet.";
      return;
    }
    if (any("x", "y", "fix", "at", "reduce", "unit", "row", "w", "importance", "brush", "theme", "size")) timed("heat", () => this.drawHeat());
    if (any("x", "y", "fix", "at", "reduce", "unit", "row", "w", "importance", "brush")) timed("controls", () => this.drawControls());
    if (any("brush", "axes", "log", "w", "theme", "size")) timed("parallel", () => this.drawLines());
    if (any("w", "importance", "theme", "size")) this.drawImportance();
  }

  drawHeat() {
    const { app } = this;
    const { ds, workload, state } = app;
    const { x, y } = heatAxes(app);
    const unit = unitOf(state.now.unit, workload);
    const { mask, count } = app.selection();
    this.heat.update({
      ds, workload, unit, x, y,
      fixed: state.now.fix,
      reduce: state.now.reduce,
      mask: count < ds.count ? mask : null,
      current: this.current(),
      clicked: state.now.row,
      searchBest: app.searchBest(),
    });
    const held = Object.entries(state.now.fix).filter(([name]) => name !== x && name !== y && ds.parameter(name));
    const rest = held.length ? `with ${held.map(([name, value]) => `${name} = ${value}`).join(", ")} and ` : "with ";
    this.heatFrame.caption.textContent = `Each cell is the ${state.now.reduce === "median" ? "median" : "best"} config with these two values, ${rest}all other parameters free, in ${unit === UNITS.time ? "time (less is better)" : unit.label}.`;
    this.drawLegend();
  }

  drawLegend() {
    const { ds } = this.app;
    const { unit, workload } = this.heat.input;
    const bar = el("i", { class: "gradient" });
    bar.style.background = `linear-gradient(90deg, ${[0, 0.25, 0.5, 0.75, 1].map((s) => rgb(viridis(s))).join(",")})`;
    const ends = unit.more ? [this.heat.low, this.heat.high] : [this.heat.high, this.heat.low];
    const show = (worth) => (unit === UNITS.time ? inUnit(worth, unit, workload) : `${Math.round(worth * 10) / 10}`);
    const shown = Number.isFinite(ends[0]);
    const failed = new Map();
    for (const s of this.heat.cells.failed) if (s >= 0) failed.set(s, (failed.get(s) || 0) + 1);
    fill(
      this.legend,
      shown && el("span", {}, "slow ", show(ends[0]), bar, show(ends[1]), " fast"),
      sign("★", "global best"),
      sign("◆", "best of this search"),
      sign("▢", "current"),
      sign("▣", "clicked", "accent"),
      sign("┄", "cannot be told from the best"),
      [...failed].map(([s]) => sign(statusGlyph(ds.statuses[s]), statusText(ds.statuses[s]), "bad")),
      sign("⬚", "never measured"),
    );
  }

  drawControls() {
    const { app } = this;
    const { ds, state, workload } = app;
    const { x, y } = heatAxes(app);
    const names = ds.parameters.map((one) => [one.name, one.name]);
    const units = Object.entries(UNITS).filter(([, unit]) => unit.known(workload)).map(([key, unit]) => [key, unit.label]);
    const shownUnit = Object.keys(UNITS).find((key) => UNITS[key] === unitOf(state.now.unit, workload));
    const focus = document.activeElement?.dataset?.control;
    fill(
      this.heatTools,
      labelled("x", select("x axis", names, x, (value) => state.set({ x: value, y: value === y ? x : y }), { id: "heat-x", "data-control": "x" })),
      labelled("y", select("y axis", names, y, (value) => state.set({ y: value, x: value === x ? y : x }), { id: "heat-y", "data-control": "y" })),
      select("reduce other parameters to", [["best", "best of the rest"], ["median", "median of the rest"]], state.now.reduce, (reduce) => state.set({ reduce }), { id: "heat-reduce", "data-control": "reduce" }),
      select("unit", units, shownUnit, (unit) => state.set({ unit }), { id: "heat-unit", "data-control": "unit" }),
    );
    const constant = ds.parameters.filter((one) => one.values.length < 2 && one.name !== x && one.name !== y);
    fill(
      this.controls.body,
      ds.parameters.filter((one) => !constant.includes(one)).map((one) => this.parameterRow(one, x, y)),
      constant.length > 0 && el("p", { class: "line constant", text: `Always: ${constant.map((one) => `${one.name} = ${one.labels[0]}`).join(", ")}` }),
    );
    if (focus) document.querySelector(`[data-control="${CSS.escape(focus)}"]`)?.focus();
    this.drawReadout();
  }

  parameterRow(one, x, y) {
    const { app } = this;
    const { state } = app;
    const axis = one.name === x ? "x" : one.name === y ? "y" : "";
    const [cx, cy] = this.current();
    const fixed = state.now.fix[one.name];
    const chosen = axis === "x" ? cx : axis === "y" ? cy : one.labels.indexOf(fixed);
    const choose = (code) => {
      if (axis === "x") this.setCurrent(code, cy);
      else if (axis === "y") this.setCurrent(cx, code);
      else {
        const fix = { ...state.now.fix };
        if (code < 0) delete fix[one.name];
        else fix[one.name] = one.labels[code];
        state.set({ fix });
      }
    };
    const step = (by) => choose(Math.max(0, Math.min(one.values.length - 1, chosen < 0 ? (by > 0 ? 0 : one.values.length - 1) : chosen + by)));
    const shown = one.values.length <= 12;
    return el(
      "div",
      { class: "parameter", "data-parameter": one.name },
      el("span", { class: "name", title: one.name }, one.name, axis && el("em", { text: axis })),
      el(
        "div",
        { class: "values", role: "group", "aria-label": one.name },
        !axis && button("any", `Leave ${one.name} free`, () => choose(-1), { "aria-pressed": String(chosen < 0), class: "value", "data-control": `${one.name}=any` }),
        shown
          ? one.labels.map((text, code) => button(text, `${one.name} = ${text}`, () => choose(code), { "aria-pressed": String(code === chosen), class: "value", "data-control": `${one.name}=${text}` }))
          : select(one.name, one.labels.map((text, code) => [String(code), text]), String(chosen), (code) => choose(Number(code)), { "data-control": `${one.name}=` }),
      ),
      el(
        "div",
        { class: "stepper" },
        button("−", `Smaller ${one.name}`, () => step(-1), { "data-control": `${one.name}-` }),
        button("+", `Larger ${one.name}`, () => step(1), { "data-control": `${one.name}+` }),
      ),
    );
  }

  drawReadout() {
    const { app } = this;
    const { ds, workload, state } = app;
    const unit = unitOf(state.now.unit, workload);
    const [cx, cy] = this.current();
    const cell = cy * this.heat.cells.wide + cx;
    const ns = this.heat.cells.ns[cell];
    const best = ds.best >= 0 ? ds.usable[ds.best] : NaN;
    const failed = this.heat.cells.failed[cell];
    const size = workload.space_size;
    const items = [
      ["current", "Current", ns >= 0 ? inUnit(ns, unit, workload) : failed >= 0 ? statusText(ds.statuses[failed]) : "not measured"],
      ["best-found", "Best found", inUnit(best, unit, workload)],
      ["of-best", "Of the table's best", percent(best / ns)],
      ["of-roofline", "Of the roofline", workload.roofline_ns ? percent(workload.roofline_ns / ns) : "flops, bytes unknown"],
      ["tested", "Tested", `${counted(ds.count)} of ${size ? counted(size) : "an unknown number"}`],
      ["product", "The space", workload.space_product || (size ? counted(size) : plural(ds.count, "config"))],
    ];
    fill(this.readout, items.map(([name, text, value]) => el("div", {}, el("dt", { text }), el("dd", { "data-readout": name, text: value }))));
  }

  drawLines() {
    const { app } = this;
    const { ds, state } = app;
    const { mask, count } = app.selection();
    const entries = parallelEntries(app);
    const log = usesLog(app);
    const k = el("input", { type: "number", min: "0.1", max: "100", step: "any", value: "5", "aria-label": "best k percent", id: "best-k" });
    if (this.lineTools.querySelector("#best-k")) k.value = this.lineTools.querySelector("#best-k").value;
    fill(
      this.lineTools,
      button("Best", "Keep the best k % (key B: 1, 5, 10, 25 %, all)", () => this.setBest(Number(k.value)), { id: "best-button" }),
      k,
      el("span", { class: "soft", text: "%" }),
      button(log ? "log ✓" : "log", "Logarithmic scales (key L)", () => state.set({ log: log ? "0" : "1" }), { "aria-pressed": String(log), id: "log-button" }),
      button("Undo", "Undo the last brush or axis change (key U)", () => state.undo(), { id: "undo-button", disabled: !state.past.length }),
      button("Clear", "Remove all brushes (key C)", () => state.set({ brush: {} }), { id: "clear-button" }),
      this.axisChooser(entries),
    );
    this.lines.update({ ds, workload: app.workload.id, entries, brush: state.now.brush, mask, count, log });
    fill(this.lineLegend, Array.from({ length: CLASSES }, (_, c) => {
      const box = el("i", { class: "swatch" });
      box.style.background = classColor(c);
      return el("span", {}, box, CLASS_NAMES[c]);
    }));
  }

  axisChooser(entries) {
    const { ds, state } = this.app;
    const names = entries.map(axisName);
    const was = this.lineTools.querySelector("details");
    return el(
      "details",
      { class: "chooser", open: was && was.open },
      el("summary", { text: "Axes" }),
      el("div", { class: "menu" }, [...ds.axes.values()].map((axis) => {
        const box = el("input", {
          type: "checkbox",
          onchange: () => state.set({ axes: box.checked ? [...entries, axis.name] : entries.filter((entry) => axisName(entry) !== axis.name) }),
        });
        box.checked = names.includes(axis.name);
        return el("label", {}, box, axis.label);
      })),
    );
  }

  drawImportance() {
    const { importance } = this.app;
    const list = importance || [];
    this.importanceFrame.root.querySelector(".note")?.remove();
    this.bars.surface.canvas.hidden = !list.length;
    if (!list.length) {
      this.importanceFrame.body.append(note(importance === null ? "Reading…" : "Too few trials to say what matters."));
      return;
    }
    this.bars.update(list.map((one) => ({ name: one.parameter, value: one.share, low: one.low, high: one.high, outer: one.total, text: importanceText(one) })));
  }

  chooseX(name) {
    const { x, y } = heatAxes(this.app);
    this.app.state.set({ x: name, y: name === y ? x : y });
  }

  importanceCsv() {
    const rows = (this.app.importance || []).map((one) => [one.parameter, one.share, one.low, one.high, one.total]);
    saveCsv([["parameter", "share", "low", "high", "with_others"], ...rows], "importance.csv");
  }
}

const importanceText = (one) => (one.total > 0 ? `${percent(one.share, 2)}, ${percent(one.total, 2)} with others` : percent(one.share, 2));

function sign(glyph, text, kind = "") {
  return el("span", { class: kind }, el("i", { class: "glyph", text: glyph }), text);
}

