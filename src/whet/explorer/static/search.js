// Searches: how soon they find what, and a replay of several of them walking over the heat map.

import { SERIES } from "./colors.js";
import { button, el, figure, fill, labelled, note, select } from "./dom.js";
import { counted, digits, nanoseconds, percent, seconds, statusText, unitOf } from "./format.js";
import { HeatMap } from "./heat.js";
import { Plot } from "./plot.js";
import { heatAxes } from "./space.js";

const SPEEDS = [["1", "1 a second"], ["5", "5 a second"], ["20", "20 a second"], ["100", "100 a second"]];
const FIRST_LANES = ["grid", "random", "gp", "auto"];
const MOST_LANES = 6;

/** A lane is a simulated search, 'random:3' with its seed, or a run that took place, 'run:ID'. */
function laneQuery(lane, budget) {
  const at = lane.lastIndexOf(":");
  if (lane.startsWith("run:")) return { run: lane.slice(4) };
  return at < 0 ? { strategy: lane, seed: 0, budget } : { strategy: lane.slice(0, at), seed: Number(lane.slice(at + 1)) || 0, budget };
}

export class SearchView {
  constructor(app, root) {
    this.app = app;
    this.answers = new Map();
    this.strategies = null;
    this.runs = [];
    this.playing = false;
    this.speed = 5;
    this.lanes = [];
    this.replay = figure({
      id: "replay",
      title: "Replay",
      line: "Every search walks over the same heat map: bright is fast, faint is not tried yet, the ring is where it is now, the diamond the best it has found, the star the best there is.",
      tools: [(this.controls = el("div", { class: "controls" }))],
    });
    this.grid = el("div", { class: "lanes" });
    this.replay.body.append(this.grid);
    this.curve = figure({
      id: "convergence",
      title: "Convergence",
      line: "",
      png: () => this.plot.png("convergence"),
      csv: () => this.plot.csv("convergence"),
      tools: [(this.curveTools = el("div", { class: "controls" }))],
    });
    this.plot = new Plot(this.curve.body, {
      height: 250,
      label: "convergence of searches; arrow keys read values",
      tip: (one, i) => this.tipOf(one, i),
      clicked: (one, i) => this.clicked(one, i),
      ranged: (low, high) => this.ranged(low, high),
    });
    this.claims = figure({
      id: "claims",
      title: "Is it so here?",
      line: "What is often said of such spaces, checked on these measurements.",
    });
    root.append(this.replay.root, this.curve.root, this.claims.root);
  }

  left() {
    this.pause();
  }

  budget() {
    const { ds, state } = this.app;
    const most = Math.min(2000, Math.max(1, ds.count));
    return Math.max(1, Math.min(most, state.now.budget || Math.min(100, most)));
  }

  lanesWanted() {
    const known = (this.strategies || []).map((one) => one.name);
    const isKnown = (lane) => (lane.startsWith("run:") ? this.runs.some((one) => `run:${one.id}` === lane) : known.includes(lane.split(":")[0]));
    const asked = this.app.state.now.lanes.filter(isKnown);
    if (asked.length) return asked.slice(0, MOST_LANES);
    const runs = this.runs.slice(-1).map((one) => `run:${one.id}`);
    return [...runs, ...FIRST_LANES.filter((name) => known.includes(name))].slice(0, 4).map((one) => (one.includes(":") ? one : `${one}:0`));
  }

  render(changed) {
    const { app } = this;
    if (!app.ds) return;
    if (!changed || changed.has("w") || this.of !== app.workload.id) this.prepare();
    else if (changed.has("lanes") || changed.has("budget") || changed.has("data")) this.load();
    else this.draw(changed);
  }

  async prepare() {
    const { app } = this;
    const { workload } = app;
    this.of = workload.id;
    this.pause();
    this.answers = new Map();
    const quiet = (promise) => promise.catch(() => []);
    const [strategies, runs] = await Promise.all([this.strategies || quiet(app.source.strategies()), quiet(app.source.runs(workload.id))]);
    if (app.workload !== workload) return;
    this.strategies = strategies;
    this.runs = runs;
    this.drawClaims();
    await this.load();
  }

  async load() {
    const { app } = this;
    const { workload } = app;
    const budget = this.budget();
    const wanted = this.lanesWanted();
    this.names = wanted;
    this.drawControls();
    const fetched = wanted.map(async (lane) => {
      const key = `${lane}|${lane.startsWith("run:") ? app.ds.rows : budget}`;
      if (!this.answers.has(key)) {
        const promise = app.source.search(workload.id, laneQuery(lane, budget)).catch((error) => ({ absent: error.message }));
        this.answers.set(key, promise);
      }
      return this.course(lane, await this.answers.get(key));
    });
    fill(this.grid, wanted.map((lane) => note(`Simulating ${lane}…`)));
    const lanes = await Promise.all(fetched);
    if (app.workload !== workload || this.names !== wanted) return;
    this.lanes = lanes;
    this.buildLanes();
    this.draw(null);
  }

  course(lane, answer) {
    const { ds } = this.app;
    const [name, seed] = lane.startsWith("run:") ? ["run", null] : [lane.split(":")[0], lane.split(":")[1]];
    const strategy = (this.strategies || []).find((one) => one.name === name);
    const title = answer.label || (strategy && strategy.label) || answer.strategy || name;
    const course = {
      lane,
      title: lane.startsWith("run:") ? `${title}, the run` : seed && seed !== "0" ? `${title}, seed ${seed}` : title,
      line: answer.line || (strategy && strategy.line) || "",
      absent: answer.absent || (answer.rows && !answer.rows.length ? "Nothing was tried in it." : ""),
      rows: answer.rows || [],
      seconds: answer.seconds || [],
      best: [],
      bestRows: [],
    };
    let best = -1;
    for (const row of course.rows) {
      const counts = row !== null && row < ds.rows && ds.usable[row] >= 0 && ds.finished[row];
      if (counts && (best < 0 || ds.usable[row] < ds.usable[best])) best = row;
      course.bestRows.push(best);
      course.best.push(best < 0 ? NaN : ds.usable[best]);
    }
    return course;
  }

  steps() {
    return Math.max(0, ...this.lanes.map((one) => one.rows.length));
  }

  step() {
    const asked = this.app.state.now.step;
    return Math.max(0, Math.min(this.steps(), asked === null ? this.steps() : asked));
  }

  drawControls() {
    const { state, ds, source } = this.app;
    const known = new Set(this.names);
    const options = [["", "Add a search…"]];
    for (const one of this.strategies || []) if (!known.has(`${one.name}:0`)) options.push([`${one.name}:0`, one.label || one.name]);
    for (const one of this.strategies || []) if (known.has(`${one.name}:0`)) options.push([`${one.name}:${1 + this.names.filter((n) => n.startsWith(`${one.name}:`)).length}`, `${one.label || one.name}, another seed`]);
    for (const run of this.runs) if (!known.has(`run:${run.id}`)) options.push([`run:${run.id}`, `run: ${run.search}, ${counted(run.tried)} tried`]);
    this.playButton = button(this.playing ? "⏸ Pause" : "▶ Play", "Play or pause (space)", () => this.toggle(), { id: "play", class: "primary" });
    this.slider = el("input", { type: "range", min: 0, max: this.steps(), value: this.step(), "aria-label": "step", id: "step", oninput: (event) => this.go(Number(event.target.value)) });
    this.counter = el("span", { id: "step-count", class: "soft" });
    fill(
      this.controls,
      this.playButton,
      button("‹", "Back one step (,)", () => this.go(this.step() - 1), { id: "step-back" }),
      button("›", "Forward one step (.)", () => this.go(this.step() + 1), { id: "step-on" }),
      button("Reset", "Back to the start (r)", () => this.reset(), { id: "reset" }),
      this.slider,
      this.counter,
      select("speed", SPEEDS, String(this.speed), (value) => (this.speed = Number(value)), { id: "speed" }),
      !source.embedded && labelled("evaluations", el("input", { type: "number", min: 1, max: Math.min(2000, ds.count), value: this.budget(), id: "budget", "aria-label": "evaluations", onchange: (event) => state.set({ budget: Number(event.target.value) || null, step: null }) })),
      options.length > 1 && select("add a search", options, "", (lane) => lane && state.set({ lanes: [...this.names, lane] }), { id: "add-lane" }),
    );
  }

  buildLanes() {
    const { state } = this.app;
    this.maps = [];
    this.grid.classList.toggle("one", this.lanes.length === 1);
    fill(
      this.grid,
      this.lanes.map((one, i) => {
        const dot = el("i", { class: "swatch" });
        dot.style.background = SERIES[i % SERIES.length];
        const holder = el("div");
        const status = el("p", { class: "lane-status", "data-lane-status": one.lane });
        const card = el(
          "div",
          { class: "lane", "data-lane": one.lane },
          el("header", {}, el("h3", {}, dot, one.title), this.lanes.length > 1 && button("✕", `Remove ${one.title}`, () => state.set({ lanes: this.names.filter((name) => name !== one.lane) }), { class: "quiet" })),
          el("p", { class: "line", text: one.line }),
          one.absent ? note(one.absent) : holder,
          status,
        );
        if (!one.absent) {
          this.maps[i] = { holder, status, map: null };
        }
        return card;
      }),
    );
    this.maps.forEach((one, i) => {
      one.map = new HeatMap(one.holder, {
        height: 168,
        small: true,
        label: `heat map of ${this.lanes[i].title}`,
        picked: (x, y, row) => row >= 0 && state.set({ row, view: "trial" }),
      });
    });
    this.drawControls();
  }

  draw(changed) {
    if (!this.lanes.length) return;
    const step = this.step();
    this.maps.forEach((one, i) => one && this.drawLane(one, this.lanes[i], step));
    this.slider.max = this.steps();
    this.slider.value = step;
    this.counter.textContent = `${counted(step)} of ${counted(this.steps())}`;
    const first = this.lanes.find((one) => one.bestRows.length);
    const at = first && Math.min(step, first.bestRows.length) - 1;
    this.app.searched = first && at >= 0 && first.bestRows[at] >= 0 ? first.bestRows[at] : null;
    this.drawCurve(changed);
  }

  drawLane(holder, course, step) {
    const { ds, workload, state } = this.app;
    const { x, y } = heatAxes(this.app);
    const across = ds.parameter(x);
    const down = ds.parameter(y);
    const size = across.values.length * down.values.length;
    const walk = { tried: new Uint32Array(size), ns: new Float32Array(size).fill(NaN), failed: new Int16Array(size).fill(-1) };
    const done = Math.min(step, course.rows.length);
    for (let i = 0; i < done; i++) {
      const row = course.rows[i];
      if (row === null || row >= ds.rows) continue;
      const cell = down.codes[row] * across.values.length + across.codes[row];
      walk.tried[cell]++;
      const ns = ds.usable[row];
      if (ns >= 0) {
        if (!(walk.ns[cell] <= ns)) walk.ns[cell] = ns;
      } else if (walk.failed[cell] < 0) walk.failed[cell] = ds.columns.status[row];
    }
    const last = done ? course.rows[done - 1] : null;
    const best = done ? course.bestRows[done - 1] : -1;
    holder.map.update({
      ds, workload, unit: unitOf(state.now.unit, workload), x, y, fixed: {}, reduce: "best", mask: null,
      current: last === null || last === undefined ? null : [across.codes[last], down.codes[last]],
      clicked: null,
      searchBest: best,
      walk,
    });
    const share = best >= 0 ? ds.usable[ds.best] / ds.usable[best] : NaN;
    const now = last === null || last === undefined ? "" : ds.usable[last] >= 0 ? nanoseconds(ds.usable[last]) : statusText(ds.status(last));
    const spent = done && Number.isFinite(course.seconds[done - 1]) ? `, ${seconds(course.seconds[done - 1])} spent` : "";
    holder.status.textContent = done ? `${counted(done)} tried${spent}; now ${now}; best ${best >= 0 ? `${nanoseconds(ds.usable[best])}, ${percent(share)} of the best` : "–"}` : "Not started.";
  }

  bySeconds() {
    return this.app.state.now.by === "seconds";
  }

  drawCurve() {
    const { ds, state } = this.app;
    const by = this.bySeconds();
    const best = ds.best >= 0 ? ds.usable[ds.best] : NaN;
    const step = this.step();
    const series = this.lanes.filter((one) => !one.absent).map((one) => {
      const i = this.lanes.indexOf(one);
      const count = Math.max(step, 1);
      return {
        name: one.title,
        course: one,
        color: SERIES[i % SERIES.length],
        kind: "steps",
        x: one.rows.map((_, k) => (by ? one.seconds[k] : k + 1)).slice(0, count),
        y: one.best.map((ns) => best / ns).slice(0, count),
      };
    });
    const whole = this.lanes.filter((one) => !one.absent).map((one) => ({
      name: one.title,
      color: SERIES[this.lanes.indexOf(one) % SERIES.length],
      kind: "steps",
      faint: true,
      alpha: 0.25,
      width: 1.2,
      x: one.rows.map((_, k) => (by ? one.seconds[k] : k + 1)),
      y: one.best.map((ns) => best / ns),
    }));
    this.plot.update({
      series: [...whole, ...series],
      x: { label: by ? "seconds of tuning" : "evaluations", log: by, show: by ? seconds : digits },
      y: { label: "share of the best speed", show: (value) => percent(value, 3), high: 1.02 },
      rules: [{ side: "y", at: 1, text: "the best there is" }, { side: "y", at: 0.95, text: "95 %" }],
      cursor: by ? NaN : Math.max(1, step),
    });
    this.curve.caption.textContent = `The best speed each search has found after so many ${by ? "seconds of building and measuring" : "evaluations"}: higher and further left is better. ${this.reached(best)}`;
    fill(
      this.curveTools,
      select("by", [["evaluations", "by evaluations"], ["seconds", "by seconds"]], by ? "seconds" : "evaluations", (value) => state.set({ by: value }), { id: "by" }),
      el("div", { class: "legend inline" }, series.map((one) => {
        const dot = el("i", { class: "swatch" });
        dot.style.background = one.color;
        return el("span", {}, dot, one.name);
      })),
    );
  }

  reached(best) {
    const texts = this.lanes.filter((one) => !one.absent).map((one) => {
      const at = one.best.findIndex((ns) => best / ns >= 0.95);
      return at < 0 ? `${one.title} does not get to 95 %` : `${one.title} gets to 95 % after ${counted(at + 1)} (${seconds(one.seconds[at])})`;
    });
    return texts.length ? `${texts.join("; ")}.` : "";
  }

  tipOf(one, i) {
    const { course } = one;
    const lines = [one.name, ["evaluation", counted(i + 1)], ["share of the best", percent(one.y[i])]];
    if (course) {
      lines.push(["spent", seconds(course.seconds[i])]);
      if (course.bestRows[i] >= 0) lines.push(["time", nanoseconds(course.best[i])]);
    }
    return lines;
  }

  clicked(one, i) {
    const row = one.course && one.course.bestRows[i];
    if (row >= 0) this.app.state.set({ row, view: "trial" });
  }

  /** A dragged range selects the rows that the first search tried within it. */
  ranged(low, high) {
    const course = this.lanes.find((one) => !one.absent);
    if (!course) return;
    const by = this.bySeconds();
    if (!course.lane.startsWith("run:")) {
      this.go(Math.round(by ? course.seconds.filter((s) => s <= high).length : high));
      return;
    }
    const inside = course.rows.filter((row, k) => {
      const at = by ? course.seconds[k] : k + 1;
      return row !== null && at >= low && at <= high;
    });
    if (inside.length) this.app.brush("order", [`${Math.min(...inside) + 1}..${Math.max(...inside) + 1}`]);
  }

  key(event) {
    const acts = {
      " ": () => this.toggle(),
      ",": () => this.go(this.step() - 1),
      ".": () => this.go(this.step() + 1),
      r: () => this.reset(),
    };
    if (event.ctrlKey || event.metaKey || event.altKey || !acts[event.key]) return false;
    if (event.key === " " && event.target.tagName === "BUTTON") return false;
    acts[event.key]();
    return true;
  }

  go(step) {
    this.app.state.set({ step: Math.max(0, Math.min(this.steps(), step)) });
  }

  reset() {
    this.pause();
    this.go(0);
  }

  toggle() {
    if (this.playing) this.pause();
    else this.play();
  }

  play() {
    if (!this.steps()) return;
    if (this.step() >= this.steps()) this.go(0);
    this.playing = true;
    this.playButton.textContent = "⏸ Pause";
    let last = performance.now();
    let owed = 1;
    const frame = (now) => {
      if (!this.playing) return;
      owed += ((now - last) / 1000) * this.speed;
      last = now;
      const whole = Math.floor(owed);
      if (whole) {
        owed -= whole;
        this.go(this.step() + whole);
      }
      if (this.step() >= this.steps()) this.pause();
      else requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }

  pause() {
    this.playing = false;
    if (this.playButton) this.playButton.textContent = "▶ Play";
  }

  drawClaims() {
    const { ds } = this.app;
    const claims = checkClaims(ds);
    this.claims.root.hidden = !claims.length;
    fill(this.claims.body, el("ul", { class: "claims" }, claims.map((one) => el("li", {}, el("b", { text: one.holds ? "✓ " : "✗ " }), el("span", { text: one.text })))));
  }
}

/** The best time at each value of a parameter. */
function bestByValue(ds, one) {
  const best = new Float64Array(one.values.length).fill(Infinity);
  for (const row of ds.fastest) {
    if (ds.usable[row] < best[one.codes[row]]) best[one.codes[row]] = ds.usable[row];
  }
  return best;
}

function checkClaims(ds) {
  if (ds.best < 0) return [];
  const claims = [];
  const top = ds.usable[ds.best];
  const numeric = ds.parameters.filter((one) => one.kind === "int" && one.values.length > 2);
  for (const one of numeric.filter((p) => /block|tile/i.test(p.name)).slice(0, 3)) {
    const best = bestByValue(ds, one);
    const at = best.indexOf(Math.min(...best));
    const ends = [best[0], best[best.length - 1]].map((ns) => percent(top / ns));
    const holds = at > 0 && at < best.length - 1;
    claims.push({ holds, text: `Medium tiles win: the best ${one.name} is ${one.labels[at]}; the smallest (${one.labels[0]}) reaches ${ends[0]} and the largest (${one.labels[one.labels.length - 1]}) ${ends[1]} of the best.` });
  }
  const stages = numeric.find((p) => /stage/i.test(p.name));
  if (stages) {
    const best = Array.from(bestByValue(ds, stages)).filter(Number.isFinite);
    const loss = 1 - Math.min(...best) / Math.max(...best);
    claims.push({ holds: loss < 0.1, text: `Stages matter little: the worst choice of ${stages.name} loses ${percent(loss)} if all else is chosen well.` });
  }
  const warps = ds.parameter("num_warps");
  const tiles = ds.parameters.filter((p) => /block.*[mn]$|tile.*[mn]$/i.test(p.name));
  if (warps && warps.values.length > 1 && tiles.length >= 2) {
    const area = (row) => tiles.slice(0, 2).reduce((all, p) => all * Number(p.values[p.codes[row]]), 1);
    const areas = new Map();
    for (const row of ds.fastest) if (!areas.has(area(row))) areas.set(area(row), warps.values[warps.codes[row]]);
    const pairs = [...areas].sort((a, b) => a[0] - b[0]);
    const rising = pairs.every(([, w], i) => !i || w >= pairs[i - 1][1]);
    claims.push({ holds: rising && pairs.length > 1 && pairs[0][1] < pairs[pairs.length - 1][1], text: `Warps follow the tile: the best num_warps by tile area is ${pairs.map(([a, w]) => `${w} at ${counted(a)}`).join(", ")}.` });
  }
  return claims;
}
