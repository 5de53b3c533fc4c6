// Every kernel, key and device in the store.

import { SERIES } from "./colors.js"
import { extent } from "./dataset.js"
import { button, el, figure, fill, note, opens, saveCsv, sortHeading, swatch } from "./dom.js"
import { configText, counted, digits, isMeasured, kernelText, keyText, nanoseconds, percent, plural, seconds, statusText, workloadText } from "./format.js"
import { COMMANDS, EMPTY, View } from "./view.js"

const MOST_SHOWN = 300
// So many rows can be taken in at a glance; of more, those of one kernel are behind a row of their own.
const FEW_ROWS = 12

const COLUMNS_SHOWN = [
	["kernel", "kernel", w => w.kernel],
	["key", "key", keyText],
	["device", "device", w => w.device],
	["best", "best", w => (w.best ? w.best.ns : Infinity)],
	["speedup", "speed-up", w => -(w.speedup || 0)],
	["typical", "over the median", w => -(w.typical_ns && w.best ? w.typical_ns / w.best.ns : 0)],
	["roofline", "of roofline", w => -(w.roofline_ns && w.best ? w.roofline_ns / w.best.ns : 0)],
	["trials", "configs by outcome", w => -w.configs],
	["cost", "cost", w => -w.cost_s],
	["exact", "result", w => (w.exact === true ? 0 : 1)]
]

export class WorkloadsView extends View {
	constructor(app, root) {
		super(app, root)
		this.frame = figure({
			id: "workloads",
			title: "Workloads",
			line: "Every kernel, key and device that was tuned: its best time, what tuning gained, what failed, what it cost. Click one to look at its space.",
			csv: () => this.csv()
		})
		this.filter = el("input#workload-filter", { type: "search", placeholder: "Filter", "aria-label": "Filter workloads", oninput: () => this.set({ find: this.filter.value || null }) })
		fill(this.frame.tools, this.filter)
		root.append(this.frame.root)
	}

	columns() {
		const { workloads } = this
		const needs = { speedup: "speedup", typical: "typical_ns", roofline: "roofline_ns" }
		return COLUMNS_SHOWN.filter(([name]) => !needs[name] || workloads.some(w => w[needs[name]]))
	}

	listed() {
		const { find, order } = this.now
		const all = this.workloads.filter(w => workloadText(w).toLowerCase().includes((find || "").toLowerCase()))
		const value = COLUMNS_SHOWN.find(([name]) => name === order?.replace(/^-/, ""))?.[2]
		if (!value) return all
		const sign = order.startsWith("-") ? -1 : 1
		return [...all].sort((a, b) => sign * (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0))
	}

	heading(name, text) {
		return sortHeading(text, name, this.now.order, ["best", "speedup", "typical", "roofline", "cost"].includes(name), order => this.set({ order }), null)
	}

	// Workloads of one kernel on one device, behind one row that says what they have in common.
	groups(shown) {
		const groups = Map.groupBy(shown, w => `${kernelText(w)} · ${w.device}`)
		const folded = shown.length > FEW_ROWS && !this.now.find
		const { open } = this.now
		return [...groups].flatMap(([title, list]) => {
			if (!folded || list.length < 3) return list.map(w => this.row(w))
			const isOpen = open.includes(title)
			const toggle = () => this.set({ open: isOpen ? this.now.open.filter(one => one !== title) : [...this.now.open, title] })
			return [this.groupRow(title, list, isOpen, toggle), ...(isOpen ? list.map(w => this.row(w)) : [])]
		})
	}

	groupRow(title, list, isOpen, toggle) {
		const columns = this.columns().map(([name]) => name)
		// All keys of a table share its builds.
		const shared = (list[0].origin === "table" && list[0].work.build) || 0
		const [least, most] = extent(list.map(w => w.best?.ns).filter(ns => ns > 0))
		const cells = {
			kernel: el("td", button(`${isOpen ? "▾" : "▸"} ${kernelText(list[0])}`, `${isOpen ? "Fold" : "Unfold"} ${title}`, null, { class: "plain", "aria-expanded": String(isOpen) })),
			key: el("td", plural(list.length, "key")),
			device: el("td", list[0].device),
			best: el("td.number", least <= most ? `${nanoseconds(least)} to ${nanoseconds(most)}` : "–"),
			cost: el("td.number", seconds(list.reduce((all, w) => all + (w.cost_s || 0) - shared, shared)))
		}
		return el("tr.group", { "data-group": title, onclick: toggle }, columns.map(name => cells[name] || el("td")))
	}

	render() {
		this.frame.root.classList.toggle("nothing", !this.workloads.length)
		if (!this.workloads.length) {
			fill(
				this.frame.body,
				note(EMPTY),
				el("pre", COMMANDS)
			)
			return
		}
		const shown = this.listed()
		this.known = this.statuses()
		if (this.filter.value !== (this.now.find || "")) this.filter.value = this.now.find || ""
		const head = this.columns().map(([name, text]) => this.heading(name, text))
		fill(
			this.frame.body,
			this.legend(),
			el("div.scroll.tall", { tabindex: "0", "aria-label": "workloads" },
				el("table.rows.workloads", el("thead", el("tr", head)), el("tbody", this.groups(shown.slice(0, MOST_SHOWN))))
			),
			shown.length > MOST_SHOWN && note(`${counted(shown.length - MOST_SHOWN)} more: filter to find them.`, "soft")
		)
	}

	statuses() {
		const names = new Set(this.workloads.flatMap(w => Object.keys(w.trials || {})))
		return [...names].sort((a, b) => isMeasured(b) - isMeasured(a) || (a < b ? -1 : 1))
	}

	color(status) {
		return status === "ok" ? SERIES[2] : SERIES[[1, 5, 3, 6, 4, 7, 0][(this.known.indexOf(status) + 6) % 7]]
	}

	legend() {
		return el("div.legend", this.known.map(status => swatch(this.color(status), statusText(status))))
	}

	row(w) {
		const best = w.best && w.best.ns !== null ? w.best : null
		const cells = {
			kernel: el("td", el("b", kernelText(w))),
			key: el("td", { title: keyText(w), text: keyText(w) }),
			device: el("td", { title: [w.arch, configText(w.toolchain)].filter(Boolean).join(" · "), text: w.device }),
			best: el("td.number", { title: best ? configText(best.config) : "", text: best ? nanoseconds(best.ns) : "–" }),
			speedup: el("td.number", { title: w.paired ? "measured side by side" : "by medians", text: w.speedup ? `${digits(w.speedup)}×` : "–" }),
			typical: el("td.number", best && w.typical_ns ? `${digits(w.typical_ns / best.ns)}×` : "–"),
			roofline: el("td.number", best && w.roofline_ns ? meter(w.roofline_ns / best.ns) : "–"),
			trials: el("td", this.bar(w)),
			cost: el("td.number", seconds(w.cost_s)),
			exact: el("td", { title: w.exact === true ? "" : `from ${w.exact?.inherited_from}`, text: result(w) })
		}
		return el("tr", { class: this.now.w === w.id ? "chosen" : null, "data-workload-row": w.id, ...opens(() => this.set({ w: w.id, view: "space" }), `${workloadText(w)}${best ? `, ${nanoseconds(best.ns)}` : ""}`) },
			this.columns().map(([name]) => cells[name])
		)
	}

	bar(w) {
		const tried = this.known.filter(status => w.trials?.[status])
		const title = tried.map(status => `${counted(w.trials[status])} ${statusText(status)}`).join(", ") + (w.rows > w.configs ? `; ${counted(w.rows)} trials, with earlier ones of the same configs` : "")
		return el("div.stacked", el("div.stack", { title, role: "img", "aria-label": title }, tried.map(status => {
			const part = el("i")
			part.style.width = `${(100 * w.trials[status]) / w.configs}%`
			part.style.background = this.color(status)
			return part
		})), counted(w.configs))
	}

	csv() {
		const rows = [["id", "kernel", "key", "device", "best_ns", "best_config", "speedup", "paired", "roofline_share", "configs", "trials", "cost_s", "result"]]
		for (const w of this.workloads) {
			const best = w.best || {}
			rows.push([w.id, w.kernel, keyText(w), w.device, best.ns, configText(best.config), w.speedup, w.paired, w.roofline_ns / best.ns, w.configs, w.rows, w.cost_s, result(w)])
		}
		saveCsv(rows, "workloads.csv")
	}
}

const result = w => w.exact !== true ? "inherited" : w.provisional ? "provisional" : "tuned"

function meter(share) {
	const made = el("div.meter", el("i"), el("span", percent(share, 2)))
	made.firstChild.style.width = `${Math.min(100, 100 * share)}%`
	return made
}
