// What tuning cost.

import { Bars } from "./bars.js"
import { SERIES } from "./colors.js"
import { extent } from "./dataset.js"
import { button, el, facts, figure, fill, listing, note, numberCells, select, swatch } from "./dom.js"
import { counted, digits, percent, phasesOf, plural, seconds, statusText } from "./format.js"
import { TimelineChart, rangeStatistics, spanColumns } from "./timeline.js"
import { View, any } from "./view.js"

const bare = phase => phase.replace(/^build\./, "")

export class CostView extends View {
	constructor(app, root) {
		super(app, root)
		this.runs = []
		const bars = options => body => new Bars(body, options)
		this.wall = figure({ id: "wall", title: "By the clock", chart: bars({ label: "seconds of the run by phase", color: SERIES[3] }) })
		this.phases = figure({ id: "phases", title: "Work by phase", chart: bars({ label: "seconds of work by phase" }) })
		this.stages = figure({ id: "stages", title: "Building by compiler stage", chart: bars({ label: "seconds by compiler stage", color: SERIES[2] }) })
		this.outcomes = figure({
			id: "outcomes",
			title: "By outcome",
			line: "What the selected trials cost. Click an outcome to select its trials.",
			chart: bars({ label: "seconds by outcome", color: SERIES[5], clicked: one => app.brush("status", [one.key]) })
		})
		this.stock = figure({ id: "stock", title: "Compared with triton.autotune", line: "What the framework's own autotuner would have spent." })
		this.time = figure({
			id: "timeline",
			title: "Timeline",
			line: "What every worker and the device did, and when. W and S zoom, A and D pan, 0 shows all; drag to select a range, click a bar for its trial.",
			chart: body => new TimelineChart(body, {
				ranged: (low, high) => this.set({ range: low === null ? null : `${tidySeconds(low)}..${tidySeconds(high)}` }),
				zoomed: (low, high) => this.set({ zoom: low <= 0 && high >= this.whole ? null : `${low}..${high}` }),
				picked: row => this.open(row)
			})
		})
		this.chart = this.time.chart
		this.statistics = el("div#range-statistics")
		this.time.body.append(this.statistics)
		root.append(this.wall.root, el("div.halves", this.phases.root, this.stages.root), el("div.halves", this.outcomes.root, this.stock.root), this.time.root)
	}

	key(event) {
		return this.spans && this.chart.key(event)
	}

	render(changed) {
		if (!this.ds) return
		const fresh = !changed || changed.has("w") || this.of !== this.workload.id
		if (fresh || changed.has("data")) this.prepare(fresh)
		if (fresh || any(changed, "brush data theme size")) this.drawOutcomes()
		if (changed?.has("run")) this.readTimeline()
		else if (!fresh && this.spans) this.drawTimeline()
	}

	async prepare(fresh) {
		const { workload } = this
		this.of = workload.id
		if (fresh) this.spans = null
		this.drawBars(workload.work || {}, workload.wall)
		const runs = await this.source.runs(workload.id).catch(() => [])
		if (this.workload !== workload) return
		const known = list => list.map(one => `${one.id} ${one.outcome}`).join()
		const same = known(this.runs) === known(runs)
		this.runs = runs
		if (fresh || !same) await this.readTimeline()
	}

	run() {
		const asked = this.now.run
		return this.runs.find(one => String(one.id) === asked) || this.runs.at(-1) || null
	}

	async readTimeline() {
		const { workload } = this
		const run = this.run()
		this.spans = null
		this.drawTools()
		if (!run) {
			this.absent(workload.origin === "table" ? "A recorded table has no timeline: its configs were measured one by one." : "No run of this workload was recorded.")
			this.drawStock(workload.stock || stockOf(workload, this.ds), null)
			return
		}
		const told = await this.source.timeline(run.id).catch(error => ({ absent: error.message }))
		if (this.workload !== workload || this.run() !== run) return
		this.drawStock(told.stock, told)
		if (Object.keys(told.phases || {}).length) this.drawBars({ ...told.phases, ...told.stages }, told.wall)
		if (!told.spans?.length) {
			this.absent(told.absent || (run.outcome === "running" ? "The run is still going on; its timeline is kept when it ends." : "No timeline was kept for this run."))
			return
		}
		this.spans = spanColumns(told)
		this.whole = Math.max(told.wall_s || 0, extent(this.spans.end)[1])
		this.drawTools()
		this.drawTimeline()
	}

	absent(text) {
		this.chart.canvas.hidden = true
		fill(this.statistics, note(text))
	}

	drawBars(work, ledger) {
		const sum = list => list.reduce((all, [, s]) => all + s, 0)
		const bars = list => list.map(([name, s]) => ({ name, value: s, text: `${seconds(s)}, ${percent(s / sum(list), 2)}` }))
		const wall = phasesOf(ledger)
		const phases = phasesOf(work)
		const stages = Object.entries(work).filter(([name, s]) => name.startsWith("build.") && s > 0).map(([name, s]) => [bare(name), s]).sort((a, b) => b[1] - a[1])
		const rest = (work.build || 0) - sum(stages)
		if (stages.length && rest > 0.005 * work.build) stages.push(["the rest", rest])
		this.wall.root.hidden = !wall.length
		if (wall.length) this.wall.chart.update(bars(wall))
		this.wall.caption.textContent = `Wall time: every instant belongs to one phase, so that they add up to ${seconds(sum(wall))}.`
		this.phases.chart.update(bars(phases))
		this.stages.chart.update(bars(stages))
		this.stages.chart.canvas.hidden = !stages.length
		this.stages.caption.textContent = stages.length ? `Work: the stages add up to the ${seconds(work.build)} of building. The rest is builds that timed out or failed, and starting the compiler.` : "No build was timed by stage here."
		this.phases.caption.textContent = `Work of all processes together: ${seconds(sum(phases))}${wall.length ? `, side by side within ${seconds(sum(wall))} of wall time` : ""}.`
	}

	drawOutcomes() {
		const { ds } = this
		const { mask } = this.chosen
		const { status, cost_s: cost } = ds.columns
		const spent = new Float64Array(ds.statuses.length)
		const counts = ds.statusCounts(mask)
		for (let i = 0; i < ds.rows; i++) if (mask[i] && cost?.[i] > 0) spent[status[i]] += cost[i]
		const total = spent.reduce((all, s) => all + s, 0) || 1
		const list = ds.statuses
			.map((name, i) => ({ key: name, name: statusText(name), value: spent[i], n: counts[i], text: `${seconds(spent[i])}, ${percent(spent[i] / total, 2)} for ${plural(counts[i], "trial")}` }))
			.filter(one => one.n)
			.sort((a, b) => b.value - a.value)
		this.outcomes.chart.update(list)
	}

	drawStock(stock, told) {
		const { payback, saved } = told || {}
		const lines = [
			stock && `triton.autotune would have spent about ${seconds(stock.total_s)}: ${seconds(stock.build_s)} on builds, one after the other, and ${seconds(stock.benchmark_s)} on ${plural(stock.benchmarks, "benchmark")}.`,
			payback?.calls && `The tuning has paid for itself after ${plural(payback.calls, "call")}.`,
			...(saved ? savedLines(saved) : [])
		]
		this.stock.root.hidden = !lines.some(Boolean)
		fill(this.stock.body, facts(lines))
	}

	drawTools() {
		const run = this.run()
		fill(
			this.time.tools,
			this.runs.length > 1 && select("run", this.runs.map(one => [String(one.id), `${one.search}, ${counted(one.tried ?? one.trials)} tried, ${seconds(one.wall_s)}`]), String(run.id), id => this.set({ run: id, range: null, zoom: null }), { id: "run" }),
			this.spans && [
				button("−", "Zoom out (S)", () => this.chart.zoom(1.43), { id: "zoom-out" }),
				button("+", "Zoom in (W)", () => this.chart.zoom(0.7), { id: "zoom-in" }),
				button("All", "Show all (0)", () => this.set({ zoom: null }), { id: "zoom-all" }),
				button("Trace", "Save as a trace that Perfetto opens", () => this.chart.trace("whet-trace"), { id: "trace", class: "quiet" })
			]
		)
	}

	drawTimeline() {
		const { now } = this
		this.chart.canvas.hidden = false
		const zoom = ends(now.zoom) || [0, this.whole]
		const range = ends(now.range)
		this.chart.update({ spans: this.spans, whole: this.whole, low: zoom[0], high: Math.max(zoom[0] + 1e-6, zoom[1]), range, clicked: now.row })
		this.drawStatistics(range || [0, this.whole], Boolean(range))
	}

	drawStatistics([low, high], chosen) {
		const { byName, byLane, rows, count } = rangeStatistics(this.spans, low, high)
		const wide = high - low
		const workers = [...byLane].filter(([name]) => name.startsWith("worker"))
		const busy = workers.reduce((all, [, s]) => all + s, 0)
		const told = [
			`${chosen ? "Selected" : "Whole run"}: ${seconds(wide)}, from ${seconds(low)} to ${seconds(high)}; ${plural(count, "span")}, ${plural(rows.size, "trial")}.`,
			workers.length && `Build workers were busy ${percent(busy / (wide * workers.length), 2)} of it.`,
			byLane.has("device") && `The device was busy ${percent(byLane.get("device") / wide, 2)} of it.`
		]
		const list = [...byName].sort((a, b) => a[1].depth - b[1].depth || b[1].seconds - a[1].seconds)
		fill(
			this.statistics,
			facts([told.filter(Boolean).join(" ")]),
			chosen && rows.size > 0 && button(`Select these ${counted(rows.size)} trials`, "Brush the trials of this range", () => {
				const [first, last] = extent(rows)
				this.app.brush("order", [`${first + 1}..${last + 1}`])
			}, { id: "select-range" }),
			listing("spans", ["span", "count", "seconds", "mean", "longest"], list.map(([name, one]) => {
				const name0 = swatch(this.chart.ground(this.spans.names.indexOf(name)), name)
				return el("tr", el("td", { class: one.depth ? "inner" : "" }, name0), numberCells([counted(one.count), digits(one.seconds), seconds(one.seconds / one.count), seconds(one.longest)]))
			}))
		)
	}
}

const tidySeconds = s => Number(s.toPrecision(6))

function ends(text) {
	const parts = String(text || "").split("..").map(Number)
	return parts.length === 2 && parts.every(Number.isFinite) && parts[1] > parts[0] ? parts : null
}

// On a recorded table: 25 ms of warming up and 100 ms of repeating for each config that works.
function stockOf(workload, ds) {
	const build = workload.work?.build
	if (!(build > 0) || !workload.toolchain?.triton) return null
	const benchmarks = ds.fastest.length
	return { build_s: build, benchmarks, benchmark_s: benchmarks * 0.125, total_s: build + benchmarks * 0.125 }
}

function savedLines({ racing, early_refusal: refusal, cache }) {
	return [
		racing?.saved_s > 0 && `Stopping slow configs early saved ${seconds(racing.saved_s)} of measuring (${plural(racing.configs, "config")}).`,
		refusal?.configs > 0 && `Refusing ${plural(refusal.configs, "config")} before a full build saved at least ${seconds(refusal.saved_at_least_s)}.`,
		cache?.known_s > 0 && `Results already in the store saved ${seconds(cache.known_s)}.`
	]
}
