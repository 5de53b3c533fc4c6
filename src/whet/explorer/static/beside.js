// The best of two or three workloads, with the code that was kept of each.

import { diffPane, stageButtons } from "./diff.js"
import { el, fill, headCells, select } from "./dom.js"
import { configText, kernelText, nanoseconds, workloadText } from "./format.js"

// A stage that is a sentence, and stands in the table.
const INSIGHT = "insight"

const LINES = [
	["time", best => nanoseconds(best.ns)],
	["95 % interval", best => best.low_ns != null && `${nanoseconds(best.low_ns)} to ${nanoseconds(best.high_ns)}`],
	["against the slowest", (best, slowest) => `${(slowest / best.ns).toFixed(2)}×`],
	["config", best => configText(best.config)],
	[INSIGHT, (_, __, code) => code.get(INSIGHT)]
]

export class Beside {
	constructor(view) {
		this.view = view
		this.root = el("div#beside", { hidden: true })
	}

	// `sides`: [{workload, row}], the row of its best config.
	async read(sides) {
		const { source } = this.view
		this.sides = sides
		const codes = await Promise.all(sides.map(async ({ workload: { id }, row }) => {
			const { ir } = await source.trial(id, row).catch(() => ({ ir: [] }))
			return new Map(await Promise.all(ir.map(async stage => [stage, await source.ir(id, row, stage)])))
		}))
		if (this.sides !== sides) return
		this.codes = codes
		this.draw()
	}

	draw() {
		const { codes, sides, view } = this
		const stages = [...new Set(codes?.flatMap(code => [...code.keys()]))].filter(stage => stage !== INSIGHT)
		this.root.hidden = !stages.length
		if (!stages.length) return
		const { ir, diff } = view.now
		const stage = stages.includes(ir) ? ir : stages.at(-1)
		const kernels = sides.map(one => kernelText(one.workload))
		const names = new Set(kernels).size < sides.length ? sides.map(one => workloadText(one.workload)) : kernels
		const pairs = ["01", "02", "12"].filter(([, b]) => sides[b]).map(pair => [pair, `${names[pair[0]]} → ${names[pair[1]]}`])
		const [a, b] = pairs.find(([pair]) => pair === diff)?.[0] || ""
		fill(
			this.root,
			this.table(names),
			el("div.controls",
				stageButtons(view, stages, stage),
				select("what is shown", [["", "side by side"], ...pairs], b ? diff : "", pair => view.set({ diff: pair || null }), { id: "beside-diff" })
			),
			b
				? diffPane(stage, codes[a].get(stage) || "", codes[b].get(stage) || "", names[a], names[b])
				: el("div.lanes", codes.map((code, i) => el("pre.code", { tabindex: "0", "aria-label": names[i], "data-beside": i, text: code.get(stage) || "None was kept." })))
		)
	}

	table(names) {
		const bests = this.sides.map(one => one.workload.best)
		const slowest = Math.max(...bests.map(best => best.ns))
		return el("table.rows.facts", headCells(["", ...names]), el("tbody", LINES.map(([name, show]) => el("tr", { "data-fact": name }, el("td.soft", name), bests.map((best, i) => el("td", show(best, slowest, this.codes[i]) || "–"))))))
	}
}
