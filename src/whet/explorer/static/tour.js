// A tour of two minutes for a first visit.

import { button, el, fill } from "./dom.js"

// Where, what is shown and of which kernel, what is said of it, and what happens then.
const STOPS = [
	["#answers", { view: "space" }, "Five answers", "A matrix product was tuned on an H200: which config was picked, how sure that is, what failed, what matters and what it cost. A click on an answer shows what it rests on."],
	["#heat", { view: "space", x: "BLOCK_SIZE_M", y: "BLOCK_SIZE_N", brush: {}, fix: {} }, "The space", "A cell is the best config with these two values. Bright is fast, hatched failed, the star is the pick. Click a cell, or drag over several to select their trials."],
	["#parameters", { view: "space", fix: { num_warps: "2" } }, "Hold a parameter", "num_warps is now held at 2: large tiles need more. Try 4, 8 or 'any'."],
	["#parallel", { view: "space", fix: {} }, "All parameters at once", "These are the best 5 %: where the ribbons meet, they agree. Drag along any axis to brush; press B for the best 1, 5, 10 or 25 %, U to undo.", "best"],
	["#replay", { view: "search", brush: {}, budget: 100, step: 0, lanes: [] }, "Watch strategies race", "Grid, random, Bayesian and whet's own choice walk over the same map. The curve below says who gets close to the best, and how soon.", "play"],
	["#wall", { view: "cost", w: "attention_kernel" }, "The bill", "Attention, tuned in seconds: which phase had each of them, which compiler stage the builds took, and below what every worker and the device did meanwhile."],
	["#compare", { view: "compare", w: "convolution_kernel", b: null, c: null }, "A second device", "A convolution on two GPUs: how much of its speed each pick keeps on the other one, what changed in the pick, and which configs suit one GPU only."],
	["#trial", { view: "trial", w: "attention_kernel", row: null }, "One config in full", "Samples, confidence, registers, spills, shared memory; and with --keep-ir the code at every stage, beside that of another config."],
	["#view-journey", { view: "journey", w: "make_mlp" }, "A model's journey", "What torch.compile made of a model, from Python to machine code, and whether it was worth it: 'whet doctor --report' writes this page."],
	["#workloads", { view: "workloads" }, "What was tuned", "A row is a kernel with one set of sizes on one device. Now yours: run 'whet demo' or 'whet tune', then 'whet explore'. Everything you select is in the address: copy it to show a colleague."]
]

export class Tour {
	constructor(app) {
		this.app = app
		this.at = -1
		this.box = el("div#tour", { role: "dialog", "aria-label": "tour", "aria-live": "polite", hidden: true })
		addEventListener("keydown", event => event.key === "Escape" && this.at >= 0 && this.end())
		// Whoever goes elsewhere has left it.
		app.state.listen((_, now) => this.at >= 0 && now.view !== this.stops[this.at][1].view && this.end())
	}

	end() {
		this.at = -1
		this.box.hidden = true
		document.querySelector(".toured")?.classList.remove("toured")
	}

	// The costliest workload of a kernel has most to show. A report need not have every kernel.
	workload(kernel) {
		const { app } = this
		return kernel ? app.workloads.filter(w => w.kernel === kernel).sort((a, b) => b.cost_s - a.cost_s)[0] : app.mostTelling()
	}

	get stops() {
		return STOPS.filter(([, { w }]) => this.workload(w))
	}

	go(at) {
		const { app, stops } = this
		const [place, patch, title, text, then] = stops[at] || []
		this.end()
		if (!place) return
		this.at = at
		app.state.set({ ...patch, w: this.workload(patch.w).id })
		if (then === "best" && app.ds && app.made.space) app.made.space.setBest(5)
		if (then === "play") setTimeout(() => this.at === at && app.made.search?.play(), 1500)
		const target = document.querySelector(place)
		target.classList.add("toured")
		// In the page, so that it covers nothing of what it explains.
		target[target.matches(".figure") ? "prepend" : at ? "before" : "after"](this.box)
		this.box.hidden = false
		const next = button(stops[at + 1] ? "Next" : "Done", "The next stop", () => this.go(at + 1), { class: "primary", id: "tour-next" })
		fill(
			this.box,
			el("h2", title),
			el("p", text),
			el("div.controls",
				el("span.soft", `${at + 1} of ${stops.length}`),
				at > 0 && button("Back", "The stop before", () => this.go(at - 1), { id: "tour-back" }),
				button("End", "End the tour (Escape)", () => this.end(), { id: "tour-end" }),
				next
			)
		)
		next.focus({ preventScroll: true })
		if (at) target.scrollIntoView({ block: "start" })
		else scrollTo(0, 0)
	}
}
