// Tuning time against what it finds, as in 'whet lab pareto'.

import { SERIES } from "./colors.js"
import { button, el, facts, figure, fill, labelled, note, swatch } from "./dom.js"
import { counted, digits, percent, seconds, secondsTick } from "./format.js"
import { Plot } from "./plot.js"
import { View, any } from "./view.js"

// Name, label, what it means, least, usual and most.
const KNOBS = [
	["draws", "draws", "How many settings of the tuner are drawn", 2, 120, 1000],
	["runs", "runs each", "How many tunings are simulated with each", 4, 8, 50],
	["compile_factor", "parallel builds", "How many builds run at once", 1, 16, 256],
	["most_configs", "most configs", "How many configs a tuning tries at most", 1, 80, 1e4],
	["exec_ms_low", "run for ms", "The shortest time a config is repeated for, in ms", 1, 10, 1e4],
	["exec_ms_high", "to", "The longest time", 1, 100, 1e4],
	["seed", "seed", "Another seed, other draws", 0, 0, 1e6]
]
const SWITCHES = [["racing", "racing", "Add whet's race"], ["all", "all keys", "Another key of the table in every draw"]]

export class FrontierView extends View {
	constructor(app, root) {
		super(app, root)
		this.off = new Set()
		this.frame = figure({
			id: "frontier",
			title: "Frontier",
			line: "Every dot is a way of tuning, simulated many times: how long it takes and how fast a kernel it finds. The lines join those that no other beats in both. Further left and higher is better.",
			chart: body => new Plot(body, {
				height: 380,
				label: "tuning time against performance",
				tip: (one, i) => [one.name, ["tuning takes", seconds(one.x[i])], ["finds", `${percent(one.y[i])} of the best`], one.configs && ["configs tried", counted(one.configs[i])], one.exec && ["repeated for", `${digits(one.exec[i])} ms each`]]
			})
		})
		this.plot = this.frame.chart
		this.legend = el("div.legend#frontier-legend")
		this.words = el("div#frontier-words")
		this.frame.body.append(this.legend, this.words)
		root.append(this.frame.root)
	}

	knobs() {
		const made = {}
		for (const part of String(this.now.knobs || "").split("~")) {
			const [name, value] = part.split("-")
			if (name && value !== undefined) made[name] = value
		}
		return made
	}

	turn(name, value) {
		const knobs = { ...this.knobs(), [name]: value }
		this.set({ knobs: Object.entries(knobs).map(([key, one]) => `${key}-${one}`).join("~") })
	}

	render(changed) {
		if (!this.workload) return
		const key = `${this.workload.id}|${this.now.knobs}`
		if (key !== this.key0) this.read(key)
		else if (this.told && any(changed, "theme size data")) this.draw()
	}

	async read(key) {
		const { workload } = this
		this.key0 = key
		this.told = null
		this.drawTools()
		this.plot.canvas.hidden = true
		fill(this.legend)
		fill(this.words, note("Simulating; this takes some seconds…"))
		const told = await this.source.frontier(workload.id, { draws: 120, runs: 8, ...this.knobs() }).catch(error => ({ absent: error.message }))
		if (this.key0 !== key) return
		if (told.absent || told.error) {
			fill(this.words, note(told.absent || told.error))
			return
		}
		this.told = told
		this.draw()
	}

	drawTools() {
		if (this.source.embedded) return
		const knobs = this.knobs()
		const input = (name, text, title, rest) => labelled(text, el("input", { id: `knob-${name}`, title, "aria-label": text, onchange: ({ target }) => this.turn(name, target.type === "checkbox" ? +target.checked : target.value), ...rest }))
		fill(
			this.frame.tools,
			KNOBS.map(([name, text, title, min, usual, max]) => input(name, text, title, { type: "number", min, max, value: knobs[name] ?? usual })),
			SWITCHES.map(([name, text, title]) => input(name, text, title, { type: "checkbox", checked: knobs[name] === "1" })),
			input("search", "strategies", "Such as auto,random,gp; or none", { size: 8, value: knobs.search ?? "auto" })
		)
	}

	draw() {
		const { told } = this
		this.plot.canvas.hidden = false
		const series = told.series.map((one, i) => ({ ...one, color: SERIES[i % SERIES.length] }))
		const shown = series.filter(one => !this.off.has(one.name))
		const drawn = ({ name, color, configs, ...one }, at, more) => ({ name, color, x: at(one.seconds), y: at(one.fraction), configs: configs && at(configs), exec: one.exec_ms && at(one.exec_ms), ...more })
		const clouds = shown.map(one => drawn(one, all => all, { kind: "points", alpha: 0.3, size: 2.2 }))
		const lines = shown.map(one => {
			const rows = [...one.frontier].sort((p, q) => one.seconds[p] - one.seconds[q])
			return drawn(one, all => rows.map(row => all[row]), { kind: "steps", width: 2.5 })
		})
		this.plot.update({
			series: [...clouds, ...lines],
			x: { label: "seconds of tuning", log: true, show: secondsTick },
			y: { label: "share of the best speed", show: value => percent(value, 3), high: 1.01 },
			rules: [{ side: "y", at: 0.95, text: "95 % of the best", dy: 9 }]
		})
		fill(
			this.legend,
			series.map(one => {
				const on = !this.off.has(one.name)
				const made = button("", `${on ? "Hide" : "Show"} ${one.name}`, () => {
					if (on) this.off.add(one.name)
					else this.off.delete(one.name)
					this.draw()
				}, { class: "series", "data-on": String(on) })
				made.append(swatch(one.color, one.name))
				return made
			})
		)
		this.drawWords(series)
	}

	drawWords(series) {
		const when = series.map(one => {
			const at = one.frontier.filter(row => one.fraction[row] >= 0.95).map(row => one.seconds[row])
			return [one.name, at.length ? Math.min(...at) : Infinity]
		})
		const base = when[0]
		const texts = when.map(([name, s]) => {
			if (!Number.isFinite(s)) return `${name}: does not get to 95 % of the best speed.`
			const gain = name !== base[0] && Number.isFinite(base[1]) ? `, ${digits(base[1] / s, 2)}× as soon as ${base[0]}` : ""
			return `${name}: 95 % of the best speed after ${seconds(s)}${gain}.`
		})
		fill(this.words, facts(texts))
	}
}
