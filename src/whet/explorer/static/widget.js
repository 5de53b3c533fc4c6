// The space in a notebook: what is brushed is the model's, and so are the rows that are left.

import { themeOf } from "./colors.js"
import { CLASS_NAMES, Dataset, FAILED_CLASS } from "./dataset.js"
import { button, el, fill, headCells, hideTip, numberCells, swatch } from "./dom.js"
import { UNITS, configText, counted, nanoseconds, percent, plural, statusText, unitOf, workloadText } from "./format.js"
import { HeatMap } from "./heat.js"
import { Parallel, axisName, classColor } from "./parallel.js"
import { decodeColumns } from "./source.js"

const TRIALS_LISTED = 10
const AXES_AT_ONCE = 7

// JupyterLab and VS Code say it on the body, Colab on the root; the others leave it to the browser.
function isDark() {
	const { jpThemeLight, vscodeThemeKind } = document.body.dataset
	if (jpThemeLight) return jpThemeLight === "false"
	if (vscodeThemeKind) return vscodeThemeKind.includes("dark")
	return (document.documentElement.getAttribute("theme") || (matchMedia("(prefers-color-scheme: dark)").matches && "dark")) === "dark"
}

class SpaceInNotebook {
	constructor(model, root) {
		const { buffer, byteOffset, byteLength } = model.get("columns")
		this.ds = new Dataset(decodeColumns(buffer.slice(byteOffset, byteOffset + byteLength)))
		this.model = model
		this.root = root
		this.workload = model.get("line")
		this.brush = model.get("brush")
		const varied = model.get("axes").filter(name => this.ds.axes.has(name))
		this.entries = [...varied.slice(0, AXES_AT_ONCE), this.ds.axes.has("median_ns") ? "median_ns" : "status"]
		this.pair = varied.slice(0, 2)
		this.told = el("p", { role: "status" })
		this.clear = button("Clear", "Remove all brushes", () => this.select({}))
		const [lines, map, table] = [el("div"), el("div"), el("div.scroll")]
		this.table = table
		this.legend = el("div.legend")
		this.unit = unitOf(null, this.workload)
		const caption = `The best config selected for each pair of values, in ${this.unit === UNITS.time ? "time" : this.unit.label}`
		if (this.pair.length === 2) map.append(el("p.line", caption))
		root.append(el("h2", workloadText(this.workload)), el("div.controls", this.told, this.clear), lines, this.legend, el("div.halves", map, table))
		this.lines = new Parallel(lines, { height: 280, brushed: (name, wanted, draft) => this.brushed({ [name]: wanted }, draft), ordered: entries => this.order(entries) })
		if (this.pair.length === 2) {
			this.heat = new HeatMap(map, { height: 280, focus: false, label: `heat map of ${this.pair.join(" and ")}; drag to select`, picked: (x, y) => this.box([x, x], [y, y]), boxed: (xs, ys) => this.box(xs, ys) })
		}
	}

	box(...ranges) {
		this.brushed(Object.fromEntries(ranges.map(([low, high], i) => [this.pair[i], this.ds.parameter(this.pair[i]).labels.slice(low, high + 1)])))
	}

	brushed(patch, draft = false) {
		const next = { ...this.brush, ...patch }
		for (const name of Object.keys(next)) if (!next[name]) delete next[name]
		this.select(next, draft)
	}

	order(entries) {
		this.entries = entries
		this.draw()
	}

	// Python hears of it when the pointer is let go.
	select(brush, draft = false) {
		this.brush = brush
		this.draw()
		if (!draft) this.tell()
	}

	tell() {
		const rows = Uint32Array.from(this.chosen.mask.keys()).filter(row => this.chosen.mask[row])
		this.model.set("brush", this.brush)
		this.model.set("rows", new DataView(rows.buffer))
		this.model.save_changes()
	}

	heard() {
		const brush = this.model.get("brush")
		if (JSON.stringify(brush) !== JSON.stringify(this.brush)) this.select(brush)
	}

	draw() {
		const { ds, workload, brush, entries } = this
		this.root.dataset.theme = isDark() ? "dark" : "light"
		themeOf(this.root)
		const axis = ds.axes.get("median_ns")
		this.chosen = ds.mask(brush)
		const { mask, count } = this.chosen
		const first = ds.top(mask, TRIALS_LISTED)
		const best = first.length ? ds.usable[first[0]] : NaN
		this.told.textContent = `${counted(count)} of ${plural(ds.count, "config")} selected${best >= 0 ? `; the fastest of them takes ${nanoseconds(best, 4)}, ${percent(ds.share(best))} of the speed of the fastest there is` : ""}. Drag along an axis, or over the map.`
		this.clear.disabled = !Object.keys(brush).length
		this.lines.update({ ds, workload: workload.id, entries, brush, mask, count, log: axis?.high > 10 * axis?.low })
		const [x, y] = this.pair
		this.heat?.update({ ds, workload, unit: this.unit, x, y, fixed: {}, reduce: "best", mask: count < ds.count ? mask : null, current: null, clicked: null, searchBest: null })
		const dashes = color => `repeating-linear-gradient(90deg, ${color} 0 3px, transparent 3px 5px)`
		fill(this.legend, CLASS_NAMES.map((name, c) => swatch(c === FAILED_CLASS ? dashes(classColor(c)) : classColor(c), name)))
		this.list(first)
	}

	list(rows) {
		const { ds, entries } = this
		const names = entries.map(axisName).filter(name => ds.parameter(name))
		const line = row => [ds.usable[row] >= 0 ? nanoseconds(ds.usable[row], 4) : statusText(ds.status(row)), ...names.map(name => ds.parameter(name).labels[ds.parameter(name).codes[row]])]
		fill(this.table, el("table.rows", headCells(["time", ...names], "number"), el("tbody", rows.map(row => el("tr", { title: [configText(ds.config(row)), ds.standingText(row)].filter(Boolean).join("; ") }, numberCells(line(row)))))))
	}
}

export function render({ model, el: root }) {
	root.classList.add("whet-widget")
	const space = new SpaceInNotebook(model, root)
	const heard = () => space.heard()
	const redraw = () => root.clientWidth && space.draw()
	const turned = new MutationObserver(redraw)
	turned.observe(document.body, { attributeFilter: ["data-jp-theme-light", "data-vscode-theme-kind", "class"] })
	const resized = new ResizeObserver(redraw)
	resized.observe(root)
	model.on("change:brush", heard)
	return () => {
		model.off("change:brush", heard)
		turned.disconnect()
		resized.disconnect()
		hideTip()
	}
}
