// The table of the selected rows.

import { brushEnds } from "./dataset.js"
import { button, el, fill, figure, opens, saveCsv, sortHeading } from "./dom.js"
import { configText, counted, digits, isMeasured, nanoseconds, plural, statusText } from "./format.js"
import { timed } from "./timings.js"
import { View } from "./view.js"

const PAGE = 50

function brushText(ds, name, wanted) {
	const axis = ds.axes.get(name)
	if (!axis) return `${name}: not in these trials`
	if (axis.kind === "numbers") {
		const show = one => (axis.unit === "ns" ? nanoseconds(one) : `${digits(one)} ${axis.unit}`.trim())
		const [low, high] = brushEnds(wanted)
		if (low === -Infinity) return `${axis.label} ≤ ${show(high)}`
		if (high === Infinity) return `${axis.label} ≥ ${show(low)}`
		return `${axis.label} ${show(low)} to ${show(high)}`
	}
	const texts = wanted.map(one => axis.labels[axis.keys.indexOf(one)] || one)
	return `${axis.label} = ${texts.join(", ")}`
}

export class RowTable extends View {
	constructor(app, parent) {
		super(app, parent)
		this.most = PAGE
		this.frame = figure({
			id: "rows",
			title: "Selected trials",
			line: "The trials inside every brush. Click one to open it; click a heading to sort.",
			csv: () => this.csv()
		})
		this.chips = el("div.chips#chips")
		this.head = el("tr")
		this.body = el("tbody")
		this.more = button("Show more", "Show more rows", () => {
			this.most *= 4
			this.update()
		})
		const table = el("table.rows", el("thead", this.head), this.body)
		this.frame.body.append(this.chips, el("div.scroll", { tabindex: "0", "aria-label": "selected trials" }, table), this.more)
		parent.append(this.frame.root)
	}

	columns() {
		const { ds } = this
		const names = ds.parameters.map(one => [one.name, one.name])
		const rest = [
			["median_ns", "time"],
			["status", "outcome"],
			["cost_s", "cost, s"],
			["order", "trial"]
		].filter(([column]) => ds.columns[column])
		return [...rest.slice(0, 2), ...names, ...rest.slice(2)]
	}

	update() {
		this.frame.root.hidden = !this.ds
		if (!this.ds) return
		timed("table", () => this.draw())
	}

	draw() {
		const { ds } = this
		const { mask, count } = this.chosen
		const live = this.now.view === "live"
		const sort = this.now.sort || (live && "-order") || "median_ns"
		const descending = sort.startsWith("-")
		const column = sort.replace(/^-/, "")
		const known = this.columns()
		const rows = ds.top(mask, this.most * (live ? 0.2 : 1), known.some(([one]) => one === column) ? column : "median_ns", descending)
		this.drawChips(count)
		fill(this.head, el("th.number", "place"), known.map(([name, text]) => sortHeading(text, name, sort, name !== "status" && ds.parameter(name)?.kind !== "str", sort => this.set({ sort }))))
		fill(this.body, rows.map(row => this.line(row, known)))
		this.more.hidden = rows.length >= count
		this.more.textContent = `Show more (${counted(rows.length)} of ${counted(count)})`
	}

	line(row, known) {
		const { ds, now } = this
		const rank = ds.rank(row)
		return el("tr", { "data-row": row, class: now.row === row ? "chosen" : null, ...opens(() => this.open(row), `${Number.isNaN(rank) ? "" : `place ${rank}, `}${statusText(ds.status(row))} ${nanoseconds(ds.usable[row])}: ${configText(ds.config(row))}`) },
			el("td.number", Number.isNaN(rank) ? "" : rank),
			known.map(([name]) => this.cell(row, name))
		)
	}

	cell(row, name) {
		const { ds } = this
		const one = ds.parameter(name)
		if (one) return el("td", { class: one.kind === "str" ? "" : "number", text: one.labels[one.codes[row]] })
		if (name === "status") {
			const status = ds.status(row)
			const error = ds.error(row)
			return el("td", { class: status === "ok" ? "" : isMeasured(status) ? "soft" : "failed", title: error, text: [statusText(status), ds.standingText(row)].filter(Boolean).join(", ") })
		}
		const value = ds.value(row, name)
		return el("td.number", name === "median_ns" ? nanoseconds(value, 4) : digits(value))
	}

	drawChips(count) {
		const { app, ds } = this
		const { brush } = this.now
		const chips = Object.entries(brush).map(([name, wanted]) =>
			button(`${brushText(ds, name, wanted)} ✕`, `Remove the brush on ${name}`, () => app.brush(name, null), { class: "chip" })
		)
		fill(
			this.chips,
			el("b#selected-count", `${counted(count)} of ${plural(ds.count, "trial")} selected`),
			chips.length ? chips : el("span.soft", "Brush an axis or drag over cells of the heat map to select."),
			chips.length > 1 && button("Clear all", "Remove all brushes", () => this.set({ brush: {} }), { class: "chip" })
		)
	}

	csv() {
		const { ds } = this
		const { mask, count } = this.chosen
		const extra = ["median_ns", "low_ns", "high_ns", "cost_s", "build_s", "at_s"].filter(name => ds.columns[name])
		const rows = [["trial", ...ds.parameters.map(one => one.name), "status", ...extra, "error"]]
		for (const row of ds.topByTime(mask, count, false)) {
			rows.push([
				row + 1,
				...ds.parameters.map(one => one.values[one.codes[row]]),
				ds.status(row),
				...extra.map(name => ds.value(row, name)),
				ds.error(row)
			])
		}
		saveCsv(rows, "trials.csv")
	}
}
