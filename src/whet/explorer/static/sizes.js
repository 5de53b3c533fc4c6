// Which config serves all sizes of a kernel.

import { Grid, SMALL_FONT, fitText, gradient } from "./canvas.js"
import { rgb, theme, viridis } from "./colors.js"
import { readWhole } from "./dataset.js"
import { el, facts, figure, fill, labelled, listing, note, numberCells, opens, saveCsv, select, sign } from "./dom.js"
import { configText, counted, keyText, nanoseconds, percent, plural, varied } from "./format.js"
import { View, any } from "./view.js"

const LISTED_CONFIGS = 16
const MOST_TOGETHER = 4
const MOST_TRIALS = 1e6
const ROW_HIGH = 19
const ROWS_TOP = 4
const ROWS_LEFT = 86
const ROWS_FOOT = 36

// Workloads that differ in nothing but their key.
export function sizesOf(workloads, one) {
	const shared = w => JSON.stringify([w.kernel, w.fingerprint, w.device, w.toolchain, w.place || (w.origin === "table" && w.source_where)])
	return workloads.filter(w => shared(w) === shared(one))
}

// Every config with its share of the fastest's speed at every size: 0 where it failed, NaN where it was not tried.
function sharesOf(sizes) {
	const names = [...new Set(sizes.flatMap(({ ds }) => ds.parameters.map(one => one.name)))].sort()
	const configs = new Map()
	sizes.forEach(({ ds }, s) => {
		const known = names.map(name => ds.parameter(name))
		for (let row = 0; row < ds.rows; row++) {
			if (!ds.standing[row]) continue
			const key = known.map(one => one && one.labels[one.codes[row]]).join("\n")
			let one = configs.get(key)
			if (!one) configs.set(key, (one = { config: ds.config(row), shares: new Float64Array(sizes.length).fill(NaN), rows: [] }))
			one.shares[s] = ds.usable[row] >= 0 ? ds.share(ds.usable[row]) : 0
			one.rows[s] = row
		}
	})
	return [...configs.values()]
}

class Matrix extends Grid {
	update(input) {
		this.input = input
		this.cursor = null
		this.draw()
	}

	get step() {
		return (this.wide - ROWS_LEFT - 4) / this.input.sizes.length
	}

	get cells() {
		return [this.input.sizes.length, this.input.list.length]
	}

	cellUnder(event) {
		const [x, y] = this.at(event)
		return this.within(Math.floor((x - ROWS_LEFT) / this.step), Math.floor((y - ROWS_TOP) / ROW_HIGH))
	}

	draw() {
		const { list, sizes, serves } = this.input
		const pen = this.begin(ROWS_TOP + ROW_HIGH * list.length + ROWS_FOOT)
		const { ink, soft, edge, bad, accent } = theme()
		const { step } = this
		pen.font = SMALL_FONT
		list.forEach((one, r) => {
			const y = ROWS_TOP + ROW_HIGH * r
			this.text(`${r + 1}`, 22, y + ROW_HIGH / 2, soft, "right")
			this.text(`${one.served} of ${sizes.length}`, ROWS_LEFT - 6, y + ROW_HIGH / 2, ink, "right")
			one.shares.forEach((share, s) => {
				const x = ROWS_LEFT + s * step
				if (!(share >= 0)) this.rect(edge, x + step / 2 - 1, y + ROW_HIGH / 2 - 1, 2, 2)
				else if (!share) this.text("✕", x + step / 2, y + ROW_HIGH / 2, bad)
				else {
					// Small where it is too slow, so that colour is not all that says so.
					const inset = serves(share) ? 1 : 0.27 * Math.min(step, ROW_HIGH)
					this.rect(rgb(viridis(2 * share - 1)), x + inset / 2, y + inset / 2 + 0.5, step - inset, ROW_HIGH - 1 - inset)
				}
			})
		})
		const floor = ROWS_TOP + ROW_HIGH * list.length
		const half = (this.wide - ROWS_LEFT) / 2 - 8
		this.text(fitText(pen, `${keyText(sizes[0].workload)}, the quickest`, half), ROWS_LEFT, floor + 11, soft, "left")
		this.text(fitText(pen, `the slowest, ${keyText(sizes.at(-1).workload)}`, half), this.wide - 4, floor + 11, soft, "right")
		this.text(`${sizes.length} sizes`, (ROWS_LEFT + this.wide) / 2, floor + 27, ink)
		if (!this.cursor) return
		pen.strokeStyle = accent
		pen.lineWidth = 2
		pen.strokeRect(ROWS_LEFT + this.cursor[0] * step, ROWS_TOP + ROW_HIGH * this.cursor[1], step, ROW_HIGH)
	}
}

export class SizesView extends View {
	constructor(app, root) {
		super(app, root)
		this.frame = figure({
			id: "sizes",
			title: "One config for all sizes",
			line: "A row is a config, a column a size: a whole cell is close to that size's fastest config, a small one is slower, ✕ failed, a dot was not tried. Click a cell to open it.",
			csv: () => this.csv(),
			chart: body => new Matrix(body, {
				label: "configs by sizes; arrow keys move, Enter opens the trial",
				tip: (s, r) => this.tipOf(s, r),
				picked: (s, r) => this.openAt(this.list[r], s)
			})
		})
		this.matrix = this.frame.chart
		this.words = el("div#sizes-words")
		this.legend = el("div.legend")
		this.rest = el("div")
		this.frame.body.prepend(this.words)
		this.frame.body.append(this.legend, this.rest)
		root.append(this.frame.root)
	}

	get within() {
		return Number(this.now.within) || 5
	}

	async render(changed) {
		if (!this.ds) return
		const workloads = sizesOf(this.workloads, this.workload)
		const key = workloads.map(w => `${w.id} ${w.rows}`).join()
		if (key === this.key0) {
			if (this.sizes && any(changed, "within theme size data view")) this.draw()
			return
		}
		this.key0 = key
		this.sizes = null
		this.matrix.canvas.hidden = true
		fill(this.rest)
		fill(this.legend)
		const trials = workloads.reduce((all, w) => all + w.rows, 0)
		const why = workloads.length < 2 ? "This kernel was tuned at one size: there is nothing to choose between." : trials > MOST_TRIALS ? `${counted(trials)} trials are too many to compare in a browser.` : ""
		fill(this.words, note(why || `Reading ${plural(workloads.length, "size")}…`))
		if (why) return
		try {
			const read = await Promise.all(workloads.map(async workload => ({ workload, ds: await readWhole(this.source, workload.id) })))
			if (this.key0 !== key) return
			this.sizes = read.filter(({ ds }) => ds.peak > 0).sort((a, b) => a.ds.peak - b.ds.peak)
			this.configs = sharesOf(this.sizes)
			this.draw()
		} catch (error) {
			fill(this.words, note(error.message, "bad"))
		}
	}

	rank() {
		const { configs } = this
		const least = 1 / (1 + this.within / 100)
		const serves = share => share >= least
		for (const one of configs) {
			const tried = one.shares.filter(share => share >= 0)
			one.tried = tried.length
			one.served = one.shares.filter(serves).length
			one.mean = tried.reduce((all, share) => all + share, 0) / tried.length
			one.worst = one.shares.indexOf(Math.min(...tried))
		}
		configs.sort((a, b) => b.served - a.served || b.mean - a.mean)
		return serves
	}

	// Each next one serves the most of the sizes that are left.
	together(serves) {
		const chosen = []
		const left = new Set(this.sizes.keys())
		while (left.size && chosen.length < MOST_TOGETHER) {
			const count = one => [...left].filter(s => serves(one.shares[s])).length
			const more = this.configs.map(count)
			const most = Math.max(...more)
			const one = this.configs[more.indexOf(most)]
			for (const s of [...left]) if (serves(one.shares[s])) left.delete(s)
			chosen.push([one, most])
		}
		return chosen
	}

	draw() {
		const { configs, sizes } = this
		this.matrix.canvas.hidden = !sizes.length
		if (!sizes.length) {
			fill(this.words, note("Nothing was measured at any size."))
			return
		}
		const serves = this.rank()
		const chosen = this.together(serves)
		this.list = [...new Set([...configs.slice(0, LISTED_CONFIGS), ...chosen.map(([one]) => one)])]
		fill(this.frame.tools, labelled("within", select("how close to the fastest", [1, 2, 5, 10, 20].map(n => [`${n}`, `${n} %`]), `${this.within}`, within => this.set({ within }), { id: "within" })))
		this.drawWords(chosen)
		this.matrix.update({ sizes, list: this.list, serves })
		fill(this.legend, el("span", "half the speed or less", gradient(), " the fastest"), sign("■", `within ${this.within} % of the size's fastest`), sign("▪", "slower"), sign("✕", "failed", "bad"), sign("·", "not tried"))
		fill(this.rest, listing("configs by how many sizes they serve", ["config", "serves", "tried at", "of the fastest's speed, on average", "at worst"], this.list.map((one, r) => el("tr", opens(() => this.openAt(one), `config ${r + 1} serves ${one.served} of ${sizes.length}: ${configText(this.shown(one))}`), el("td.wide", `${r + 1}. ${configText(this.shown(one))}`), numberCells([counted(one.served), counted(one.tried), percent(one.mean, 3), this.worstText(one)])))))
	}

	shown(one) {
		return varied(this.ds, one.config)
	}

	worstText(one) {
		return one.shares[one.worst] ? `${percent(one.shares[one.worst], 2)} (${keyText(this.sizes[one.worst].workload)})` : `fails (${keyText(this.sizes[one.worst].workload)})`
	}

	drawWords([[first, most], ...others]) {
		const all = this.sizes.length
		const untried = all - first.tried
		const rest = most === all || !others.length ? "" : `For the rest: ${others.map(([one, more]) => `${configText(this.shown(one))} serves ${counted(more)} more`).join("; ")}.`
		fill(this.words, facts([
			`This one config serves ${counted(most)} of ${counted(all)} sizes within ${this.within} % of the fastest: ${configText(this.shown(first))}.`,
			`At worst: ${this.worstText(first)}.${untried ? ` It was not tried at ${plural(untried, "size")}.` : ""}`,
			rest
		]))
	}

	openAt(one, at = this.sizes.findIndex(({ workload }) => workload.id === this.workload.id)) {
		const s = one.rows[at] >= 0 ? at : one.rows.findIndex(row => row >= 0)
		this.set({ w: this.sizes[s].workload.id, row: one.rows[s], view: "trial" })
	}

	tipOf(s, r) {
		const { list, sizes } = this
		const { shares, rows } = list[r]
		const { ds, workload } = sizes[s]
		const time = shares[s] > 0 && nanoseconds(ds.usable[rows[s]])
		return [configText(this.shown(list[r])), ["size", keyText(workload)], time ? ["time", time] : ["", shares[s] === 0 ? "failed" : "not tried"], time && ["of the fastest's speed", percent(shares[s])]]
	}

	csv() {
		if (!this.sizes) return
		const head = ["config", "serves", ...this.sizes.map(({ workload }) => keyText(workload))]
		saveCsv([head, ...this.configs.map(one => [configText(one.config), one.served, ...one.shares])], "sizes.csv")
	}
}
