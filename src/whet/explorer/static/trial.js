// One trial: its config, its samples, what the compiler made of it, and how it differs from another.

import { SMALL_FONT, Surface, ticks } from "./canvas.js";
import { SERIES, theme } from "./colors.js";
import { diffLines } from "./diff.js";
import { button, el, figure, fill, note, saveCsv } from "./dom.js";
import { bytesText, configText, counted, inUnit, nanoseconds, percent, plural, seconds, statusText, unitOf, valueText } from "./format.js";

const QUANTILES = [0, 5, 25, 50, 75, 95, 100];

export class TrialView {
  constructor(app, root) {
    this.app = app;
    this.facts = figure({
      id: "trial",
      title: "Trial",
      line: "One config: what it is, what became of it, and how it compares with the best.",
      tools: [(this.tools = el("div", { class: "controls" }))],
      csv: () => this.csv(),
    });
    this.samples = figure({
      id: "samples",
      title: "Samples",
      line: "",
      png: () => this.surface.png("samples"),
      csv: () => this.samplesCsv(),
    });
    this.surface = new Surface(this.samples.body, { height: 190, label: "distribution of samples", focus: false });
    this.missing = el("div");
    this.samples.body.append(this.missing);
    this.code = figure({
      id: "ir",
      title: "Intermediate code and assembly",
      line: "What the compiler made of it, stage by stage; with a second config, what differs.",
      tools: [(this.codeTools = el("div", { class: "controls" }))],
    });
    root.append(el("div", { class: "halves" }, this.facts.root, this.samples.root), this.code.root);
  }

  row() {
    const { ds, state } = this.app;
    const { row } = state.now;
    return row !== null && row >= 0 && row < ds.rows ? row : ds.best;
  }

  render(changed) {
    const { app } = this;
    if (!app.ds) return;
    const row = this.row();
    const key = `${app.workload.id}|${row}|${app.state.now.vs}|${app.ds.rows}`;
    if (!changed || key !== this.key0 || changed.has("theme") || changed.has("size") || changed.has("unit")) {
      this.key0 = key;
      this.read(row);
    } else if (changed.has("ir")) this.drawCode();
  }

  async read(row) {
    const { app } = this;
    const { workload, state } = app;
    if (row < 0) {
      fill(this.tools);
      fill(this.facts.body, note("Nothing was measured yet."));
      return;
    }
    const { vs } = state.now;
    const ask = (one) => app.source.trial(workload.id, one).catch((error) => ({ absent: error.message }));
    const [trial, other] = await Promise.all([ask(row), vs !== null && vs >= 0 && vs < app.ds.rows ? ask(vs) : null]);
    if (app.workload !== workload || this.row() !== row) return;
    this.trial = trial.absent ? this.fromColumns(row, trial.absent) : trial;
    this.other = other && !other.absent ? other : null;
    this.drawTools(row);
    this.drawFacts(row);
    this.drawSamples();
    this.drawCode();
  }

  /** What the columns know, where a report has no more. */
  fromColumns(row, why) {
    const { ds } = this.app;
    const number = (name) => (Number.isFinite(ds.value(row, name)) ? ds.value(row, name) : null);
    return {
      row, why, config: ds.config(row), status: ds.status(row), error: ds.error(row), samples: [],
      median_ns: number("median_ns"), low_ns: number("low_ns"), high_ns: number("high_ns"),
      cost: { build: number("build_s"), total: number("cost_s") }, facts: {}, ir: [],
    };
  }

  drawTools(row) {
    const { app } = this;
    const { ds, state } = app;
    const rank = ds.rank(row);
    const at = (step) => {
      const next = ds.fastest[rank - 1 + step];
      if (next !== undefined) state.set({ row: next });
    };
    fill(
      this.tools,
      button("‹ faster", "The next faster config", () => at(-1), { disabled: !(rank > 1), id: "faster" }),
      button("slower ›", "The next slower config", () => at(1), { disabled: !(rank < ds.fastest.length), id: "slower" }),
      button("best", "The best config", () => state.set({ row: ds.best }), { id: "to-best" }),
      state.now.vs === null
        ? button("Compare with…", "Keep this config and compare it with the next one you open", () => state.set({ vs: row }), { id: "compare-with" })
        : button("Stop comparing", "Show one config", () => state.set({ vs: null }), { id: "compare-with" }),
    );
  }

  drawFacts(row) {
    const { app, trial, other } = this;
    const { ds } = app;
    this.facts.caption.textContent = other
      ? `Row ${row}, beside row ${other.row}, which it is compared with: what differs is marked.`
      : "One config: what it is, what became of it, and how it compares with the best.";
    const names = Object.keys(trial.config);
    const mine = this.lines(trial);
    const theirs = other ? new Map(this.lines(other).map(([name, value]) => [name, value])) : null;
    fill(
      this.facts.body,
      el("p", { class: trial.status === "ok" ? "verdict good" : "verdict bad", "data-trial": "verdict", text: this.verdict(row) }),
      trial.error && el("pre", { class: "error", "data-trial": "error", text: trial.error }),
      trial.limit && el("p", { class: "fact", text: typeof trial.limit === "string" ? trial.limit : `Limit: ${configText(trial.limit)}` }),
      el(
        "table",
        { class: "rows facts" },
        other && el("thead", {}, el("tr", {}, el("th"), el("th", { text: `row ${row}` }), el("th", { text: `row ${other.row}` }))),
        el(
          "tbody",
          {},
          names.map((name) => this.factRow(name, valueText(trial.config[name]), other ? valueText(other.config[name] ?? null) : null)),
          mine.map(([name, value]) => this.factRow(name, value, theirs ? theirs.get(name) || "–" : null)),
        ),
      ),
      trial.why && note(trial.why),
    );
    return ds;
  }

  factRow(name, value, other) {
    return el(
      "tr",
      { class: other !== null && other !== value ? "differs" : undefined, "data-fact": name },
      el("td", { class: "soft", text: name }),
      el("td", { text: value }),
      other !== null && el("td", { text: other }),
    );
  }

  verdict(row) {
    const { ds, workload } = this.app;
    const { trial } = this;
    if (!(trial.median_ns > 0)) return `${statusText(trial.status)}.`;
    const unit = unitOf(this.app.state.now.unit, workload);
    const worth = unit.label === "time" ? "" : `, ${inUnit(trial.median_ns, unit, workload)}`;
    const time = `${nanoseconds(trial.median_ns, 4)}${worth}`;
    if (row === ds.best) return `The best config: ${time}.`;
    if (ds.ties[row]) return `${time}: cannot be told from the best.`;
    const rank = ds.rank(row);
    const place = Number.isNaN(rank) ? statusText(trial.status) : `place ${counted(rank)} of ${counted(ds.fastest.length)}`;
    return `${time}: ${percent(ds.usable[ds.best] / trial.median_ns)} of the best, ${place}.`;
  }

  lines(trial) {
    const { workload } = this.app;
    const lines = [];
    const put = (name, value) => value !== null && value !== undefined && value !== "" && lines.push([name, value]);
    if (trial.median_ns > 0) {
      put("median", nanoseconds(trial.median_ns, 4));
      if (trial.low_ns !== null && trial.high_ns !== null) put("95 % interval", `${nanoseconds(trial.low_ns, 4)} to ${nanoseconds(trial.high_ns, 4)}`);
      put("samples", counted(trial.samples_total ?? trial.samples?.length ?? 0));
      if (workload.roofline_ns) put("of the roofline", percent(workload.roofline_ns / trial.median_ns));
    }
    const timing = trial.timing || {};
    put("quality", timing.quality);
    put("L2 cache", timing.l2 && timing.l2 !== "none" ? timing.l2 : "");
    put("timer", timing.timer);
    put("registers", trial.registers);
    put("spills", trial.spills);
    put("shared memory", trial.shared_bytes === null || trial.shared_bytes === undefined ? "" : bytesText(trial.shared_bytes));
    put("occupancy", Number.isFinite(trial.occupancy) && trial.occupancy !== null ? percent(trial.occupancy) : "");
    const known = new Set(["registers", "spills", "shared_bytes", "occupancy"]);
    for (const [name, value] of Object.entries(trial.facts || {})) if (!known.has(name) && !(name in trial.config)) put(name.replaceAll("_", " "), valueText(value));
    for (const [phase, s] of Object.entries(trial.cost || {})) if (s > 0) put(`cost: ${phase}`, seconds(s));
    put("config id", trial.config_id);
    return lines;
  }

  drawSamples() {
    const { trial, other } = this;
    const sets = [trial, other].filter((one) => one && (one.samples?.length || one.quantiles));
    this.surface.canvas.hidden = !sets.length;
    fill(this.missing, !sets.length && note(trial.median_ns > 0 ? "Its samples were not kept." : "It was not measured, so there are no samples."));
    if (!sets.length) {
      this.samples.caption.textContent = "How the samples spread.";
      return;
    }
    const n = trial.samples_total ?? trial.samples?.length ?? 0;
    this.samples.caption.textContent = `${plural(n, "sample")}: every dot is one, the box holds the middle half, the line is the median and the band its 95 % interval. Narrow is trustworthy.`;
    this.drawDistribution(sets);
  }

  drawDistribution(sets) {
    const rowHigh = sets.length > 1 ? 84 : 120;
    const pen = this.surface.begin(rowHigh * sets.length + 36);
    const colors = theme();
    const all = sets.flatMap((one) => (one.samples?.length ? one.samples : one.quantiles));
    let low = Math.min(...all);
    let high = Math.max(...all);
    const pad = (high - low || high) * 0.06;
    [low, high] = [low - pad, high + pad];
    const [left, right] = [14, this.surface.wide - 14];
    const px = (ns) => left + ((ns - low) / (high - low)) * (right - left);
    pen.font = SMALL_FONT;
    pen.textAlign = "center";
    const base = rowHigh * sets.length + 8;
    for (const at of ticks(low, high, 5)) {
      pen.fillStyle = colors.faint;
      pen.fillRect(px(at), 0, 1, base);
      pen.fillStyle = colors.soft;
      pen.fillText(nanoseconds(at, 4), Math.max(26, Math.min(right - 26, px(at))), base + 12);
    }
    sets.forEach((one, i) => this.drawSet(pen, one, px, rowHigh * i + 8, rowHigh - 12, SERIES[i]));
  }

  drawSet(pen, one, px, top, high, color) {
    const colors = theme();
    const sorted = one.samples?.length ? [...one.samples].sort((a, b) => a - b) : null;
    const at = (share) => (sorted ? sorted[Math.round(share * (sorted.length - 1))] : one.quantiles[QUANTILES.indexOf(100 * share)]);
    const middle = top + high * 0.74;
    if (one.low_ns !== null && one.high_ns !== null) {
      pen.fillStyle = color;
      pen.globalAlpha = 0.18;
      pen.fillRect(px(one.low_ns), top, Math.max(1, px(one.high_ns) - px(one.low_ns)), high);
      pen.globalAlpha = 1;
    }
    pen.strokeStyle = color;
    pen.lineWidth = 1.5;
    pen.beginPath();
    pen.moveTo(px(at(0)), middle);
    pen.lineTo(px(at(1)), middle);
    pen.stroke();
    pen.fillStyle = colors.panel;
    pen.fillRect(px(at(0.25)), middle - 10, Math.max(1, px(at(0.75)) - px(at(0.25))), 20);
    pen.strokeRect(px(at(0.25)), middle - 10, Math.max(1, px(at(0.75)) - px(at(0.25))), 20);
    pen.fillStyle = color;
    pen.fillRect(px(one.median_ns) - 1.5, top, 3, high);
    if (!sorted) return;
    // Dots are piled up by where they are, so that none hides another.
    const piles = new Map();
    for (const ns of sorted) {
      const slot = Math.round(px(ns) / 5);
      const pile = piles.get(slot) || 0;
      piles.set(slot, pile + 1);
      pen.beginPath();
      pen.globalAlpha = 0.8;
      pen.arc(px(ns), Math.max(top + 3, middle - 16 - pile * 5), 2.4, 0, 7);
      pen.fill();
      pen.globalAlpha = 1;
    }
  }

  async drawCode() {
    const { app, trial, other } = this;
    if (!trial) return;
    const stages = trial.ir || [];
    fill(this.codeTools);
    if (!stages.length) {
      fill(this.code.body, note("None was kept. Tune with --keep-ir to look at it here."));
      return;
    }
    const { state, workload } = app;
    const stage = stages.includes(state.now.ir) ? state.now.ir : stages[stages.length - 1];
    fill(this.codeTools, stages.map((name) => button(name, `Show ${name}`, () => state.set({ ir: name }), { "aria-pressed": String(name === stage), "data-stage": name })));
    const ask = (one) => app.source.ir(workload.id, one.row, stage).catch((error) => error.message);
    const comparable = other && (other.ir || []).includes(stage);
    const [mine, theirs] = await Promise.all([ask(trial), comparable ? ask(other) : null]);
    if (this.trial !== trial) return;
    if (theirs === null) {
      fill(this.code.body, el("pre", { class: "code", tabindex: "0", "data-ir": stage, text: mine }));
      return;
    }
    const lines = diffLines(theirs.split("\n"), mine.split("\n"));
    const added = lines.filter(([kind]) => kind === "+").length;
    const removed = lines.filter(([kind]) => kind === "-").length;
    fill(
      this.code.body,
      el("p", { class: "fact", text: added + removed ? `${stage}: ${plural(added, "line")} only in row ${trial.row} (+), ${plural(removed, "line")} only in row ${other.row} (−).` : `${stage} is the same in both.` }),
      el("pre", { class: "code", tabindex: "0", "data-ir": stage }, foldSame(lines).map(([kind, text]) => el("span", { class: { "+": "plus", "-": "minus", "…": "soft" }[kind], text: `${kind} ${text}\n` }))),
    );
  }

  csv() {
    const { trial } = this;
    if (!trial) return;
    saveCsv([["name", "value"], ...Object.entries(trial.config), ["status", trial.status], ["error", trial.error], ...this.lines(trial)], "trial.csv");
  }

  samplesCsv() {
    const { trial } = this;
    if (!trial) return;
    const rows = trial.samples?.length ? trial.samples.map((ns, i) => [i + 1, ns]) : (trial.quantiles || []).map((ns, i) => [`${QUANTILES[i]} %`, ns]);
    saveCsv([["sample", "ns"], ...rows], "samples.csv");
  }
}

/** Long stretches without a difference become one line. */
function foldSame(lines) {
  const near = new Uint8Array(lines.length);
  lines.forEach(([kind], i) => {
    if (kind !== " ") for (let j = Math.max(0, i - 3); j <= Math.min(lines.length - 1, i + 3); j++) near[j] = 1;
  });
  if (!near.some(Boolean)) return lines.slice(0, 400);
  const folded = [];
  for (let i = 0; i < lines.length; i++) {
    if (near[i]) folded.push(lines[i]);
    else {
      let end = i;
      while (end < lines.length && !near[end]) end++;
      folded.push(["…", `${end - i} lines alike`]);
      i = end - 1;
    }
  }
  return folded;
}
