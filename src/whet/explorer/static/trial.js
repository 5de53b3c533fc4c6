// One trial, and how it differs from another.

import { SERIES } from "./colors.js"
import { diffPane, stageButtons } from "./diff.js"
import { button, copy, el, figure, fill, headCells, labelled, note, select } from "./dom.js"
import { bytesText, configText, counted, inUnit, nanoseconds, percent, plural, pythonText, seconds, statusText, trialName, tritonText, unitOf, valueText, varied } from "./format.js"
import { Plot } from "./plot.js"
import { View, any } from "./view.js"

const QUANTILES = [0, 0.05, 0.25, 0.5, 0.75, 0.95, 1]

const LINE = "One config: what it is, what became of it, and how it compares with the best."

export class TrialView extends View {
	constructor(app, root) {
		super(app, root)
		this.facts = figure({
			id: "trial",
			title: "Trial",
			line: LINE
		})
		this.samples = figure({
			id: "samples",
			title: "Samples",
			shows: () => `Samples of ${trialName(this.trial?.row)}`,
			chart: body => new Plot(body, { height: 230, label: "samples, the quickest first", tip: (one, i) => [one.name, ["sample", nanoseconds(one.y[i], 4)], ["quicker ones", percent(one.x[i], 2)]] })
		})
		this.samples.body.append((this.missing = el("div")))
		this.code = figure({
			id: "ir",
			title: "Intermediate code and assembly",
			line: "What the compiler made of it, stage by stage; with a second config, what differs."
		})
		root.append(el("div.halves", this.facts.root, this.samples.root), this.code.root)
	}

	row() {
		return this.now.row in this.ds.usable ? this.now.row : this.ds.best
	}

	render(changed) {
		if (!this.ds) return
		const row = this.row()
		const key = `${this.workload.id}|${row}|${this.now.vs}|${this.ds.rows}`
		if (key !== this.key0 || any(changed, "theme size unit")) {
			this.key0 = key
			this.read(row)
		} else if (changed.has("ir")) this.drawCode()
	}

	async read(row) {
		const { workload, ds } = this
		const { vs } = this.now
		if (row < 0) {
			fill(this.facts.tools)
			fill(this.facts.body, note("Nothing was measured yet: every config failed, or none was tried. 'whet tune' goes on."))
			return
		}
		const ask = one => this.source.trial(workload.id, one).catch(error => ({ row, why: error.message, config: ds.config(one), status: ds.status(one), error: ds.error(one) }))
		const [trial, other] = await Promise.all([ask(row), vs in ds.usable && vs !== row ? ask(vs) : null])
		if (this.workload !== workload || this.row() !== row) return
		Object.assign(this, { trial, other })
		this.drawTools(row)
		this.drawFacts(row)
		this.drawSamples()
		this.drawCode()
	}

	drawTools(row) {
		const { ds, now } = this
		const rank = ds.rank(row)
		const at = step => this.set({ row: ds.fastest[ds.fastest.indexOf(row) + step] })
		fill(
			this.facts.tools,
			button("‹ faster", "The next faster config", () => at(-1), { disabled: !(rank > 1), id: "faster" }),
			button("slower ›", "The next slower config", () => at(1), { disabled: !(rank < ds.fastest.length), id: "slower" }),
			button("pick", "The config that was picked", () => this.set({ row: ds.best }), { id: "to-best" }),
			labelled("compare with", select("what to compare it with", this.partners(row), now.vs === row || !(now.vs in ds.usable) ? "" : `${now.vs}`, vs => this.set({ vs: vs ? Number(vs) : null }), { id: "compare-with" }))
		)
	}

	// The pick, the fastest, the neighbours in time, and whatever it is compared with now.
	partners(row) {
		const { ds, now } = this
		const at = ds.fastest.indexOf(row)
		const rows = [ds.best, ds.quickest, ds.firstRow, ...ds.fastest.slice(0, 5), ...ds.fastest.slice(Math.max(0, at - 2), at + 3), now.vs]
		const told = one => [trialName(one), one === ds.firstRow ? "the first config" : ds.standingText(one), nanoseconds(ds.usable[one]), configText(varied(ds, ds.config(one)))].filter(Boolean).join(", ")
		return [["", "–"], ...[...new Set(rows)].filter(one => one in ds.usable && one !== row).map(one => [`${one}`, told(one)])]
	}

	drawFacts(row) {
		const { trial, other } = this
		this.facts.caption.textContent = other
			? `This is ${trialName(row)}, beside ${trialName(other.row)}, which it is compared with: what differs is marked.`
			: `This is ${trialName(row)}. ${LINE}`
		const theirs = other && new Map(this.lines(other))
		fill(
			this.facts.body,
			el("p", { class: `verdict ${trial.status === "ok" ? "good" : "bad"}`, "data-trial": "verdict", text: this.verdict(row) }),
			this.copies(trial.config),
			trial.error && el("pre.error", { "data-trial": "error", text: trial.error }),
			el("table.rows.facts",
				other && headCells(["", trialName(row), trialName(other.row)]),
				el("tbody", this.lines(trial).map(([name, value]) => {
					const beside = theirs && (theirs.get(name) ?? "–")
					return el("tr", { class: theirs && beside !== value ? "differs" : null, "data-fact": name }, el("td.soft", name), el("td", value), theirs && el("td", beside))
				}))
			),
			trial.why && note(trial.why)
		)
	}

	// Ready to be pasted where configs are written.
	copies(config) {
		const texts = [["Copy as dict", pythonText(config)], ["Copy as triton.Config", tritonText(config)], ["Copy as JSON", JSON.stringify(config)]]
		return el("div.controls", texts.map(([name, text]) => {
			const made = button(name, `${name}: ${text}`, async () => {
				await copy(text)
				made.textContent = "Copied"
				setTimeout(() => (made.textContent = name), 1500)
			}, { class: "quiet", "data-copy": name.split(" ").at(-1) })
			return made
		}))
	}

	verdict(row) {
		const { ds, workload, trial } = this
		if (!(trial.median_ns > 0)) return `${statusText(trial.status)}.`
		const unit = unitOf(this.now.unit, workload)
		const worth = unit.label === "time" ? "" : `, ${inUnit(trial.median_ns, unit, workload)}`
		const time = `${nanoseconds(trial.median_ns, 4)}${worth}`
		const share = `${percent(ds.share(trial.median_ns))} of the fastest's speed`
		if (row === ds.best) return ds.disputed ? `The pick, not the fastest seen: ${time}, ${share}.` : `The best config: ${time}.`
		const standing = ds.standingText(row)
		if (standing) return `${time}: ${standing}.`
		const rank = ds.rank(row)
		const place = Number.isNaN(rank) ? statusText(trial.status) : `place ${counted(rank)} of ${counted(ds.fastest.length)}`
		return `${time}: ${share}, ${place}.`
	}

	lines(trial) {
		const { config, median_ns: ns } = trial
		const interval = trial.low_ns != null && `${nanoseconds(trial.low_ns, 4)} to ${nanoseconds(trial.high_ns, 4)}`
		return [
			...Object.entries(config).map(([name, value]) => [name, valueText(value)]),
			...(ns > 0 ? [["median", nanoseconds(ns, 4)], ["95 % interval", interval], ["samples", counted(trial.samples_total)], ["of the roofline", this.workload.roofline_ns && percent(this.workload.roofline_ns / ns)]] : []),
			...["quality", "l2", "timer"].map(name => [name, trial.timing?.[name]]),
			["registers", trial.registers],
			["spills", trial.spills],
			["shared memory", trial.shared_bytes != null && bytesText(trial.shared_bytes)],
			["occupancy", trial.occupancy != null && percent(trial.occupancy)],
			...Object.entries(trial.facts || {}).filter(([name]) => !(name in trial || name in config)).map(([name, value]) => [name.replaceAll("_", " "), valueText(value)]),
			...Object.entries(trial.cost || {}).filter(([, s]) => s > 0).map(([phase, s]) => [`cost: ${phase}`, seconds(s)]),
			["limit", trial.limit && configText(trial.limit)],
			["config id", trial.config_id]
		].filter(([, value]) => value || value === 0)
	}

	drawSamples() {
		const { trial, other } = this
		const sets = [trial, other].filter(one => one && (one.samples?.length || one.quantiles?.length))
		const { chart, caption } = this.samples
		chart.canvas.hidden = !sets.length
		fill(this.missing, !sets.length && note(trial.median_ns > 0 ? "Its samples were not kept." : "It was not measured, so there are no samples."))
		caption.textContent = sets.length ? `${plural(trial.samples_total, "sample")}, the quickest first: a flat row is a steady config. The line is the median, the band its 95 % interval.` : ""
		if (sets.length) chart.update({
			series: sets.flatMap((one, i) => this.drawSet(one, SERIES[i])),
			x: { label: "share of the samples", low: 0, high: 1, show: percent },
			y: { label: "time", show: ns => nanoseconds(ns, 4) }
		})
	}

	// Of a report's trials only quantiles are known.
	drawSet({ row, samples, quantiles, median_ns: ns, low_ns: low, high_ns: high }, color) {
		const sorted = samples?.length ? [...samples].sort((a, b) => a - b) : quantiles
		const x = sorted.map((_, i) => (sorted === quantiles ? QUANTILES[i] : sorted.length > 1 ? i / (sorted.length - 1) : 0.5))
		return [
			{ name: "median", kind: "line", color, faint: true, x: [0, 1], y: [ns, ns], ...(low > 0 && { upper: [high, high], lower: [low, low] }) },
			{ name: trialName(row), kind: "points", color, size: 3, alpha: 0.8, x, y: sorted }
		]
	}

	async drawCode() {
		const { trial, other } = this
		if (!trial) return
		const stages = trial.ir || []
		fill(this.code.tools)
		if (!stages.length) {
			fill(this.code.body, note("None was kept. Tune with --keep-ir to look at it here."))
			return
		}
		const { workload, now } = this
		const stage = stages.includes(now.ir) ? now.ir : stages.at(-1)
		fill(this.code.tools, stageButtons(this, stages, stage))
		const ask = one => this.source.ir(workload.id, one.row, stage).catch(error => error.message)
		const comparable = other && (other.ir || []).includes(stage)
		const [mine, theirs] = await Promise.all([ask(trial), comparable ? ask(other) : null])
		if (this.trial !== trial) return
		if (theirs === null) {
			fill(this.code.body, el("pre.code", { tabindex: "0", "data-ir": stage, text: mine }))
			return
		}
		fill(this.code.body, diffPane(stage, theirs, mine, trialName(other.row), trialName(trial.row)))
	}
}
