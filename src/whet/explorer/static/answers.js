// The five questions everybody asks, answered in words.

import { extent } from "./dataset.js"
import { el, fill } from "./dom.js"
import { configText, counted, digits, inUnit, isNoise, nanoseconds, percent, phasesOf, plural, seconds, statusText, unitOf, varied } from "./format.js"

// Each leads to where there is more of it.
const QUESTIONS = [
	["best", "The pick", "#trial", ds => ({ view: "trial", row: ds.best })],
	["sure", "How sure is it", "#samples", ds => ({ view: "trial", row: ds.best })],
	["failed", "What failed, and why", "#rows", ds => ds.failures.length > 0 && { view: "space", brush: { status: ds.failures } }],
	["matters", "What matters most", "#importance", () => ({ view: "space" })],
	["cost", "What it cost", "#phases", () => ({ view: "cost" })]
]


function failureTexts(app) {
	const { ds, workload } = app
	const total = ds ? ds.count : workload.configs
	const counts = ds
		? ds.statusCounts(ds.standing).map((n, i) => [ds.statuses[i], n])
		: Object.entries(workload.trials || {})
	const failed = counts.filter(([status, n]) => n && !["ok", "outraced", "untried"].includes(status)).sort((a, b) => b[1] - a[1])
	const sum = failed.reduce((all, [, n]) => all + n, 0)
	if (!sum) return [`Nothing failed in ${plural(total, "config")}`, ""]
	const reasons = failed.map(([status, n]) => `${counted(n)} ${statusText(status)}`).join(", ")
	return [`${counted(sum)} of ${counted(total)}: ${reasons}`, ds ? commonError(ds) : ""]
}

function commonError(ds) {
	const codes = ds.columns.error
	if (!codes || ds.errors.length < 2) return ""
	const counts = new Uint32Array(ds.errors.length)
	for (let i = 0; i < codes.length; i++) counts[codes[i]]++
	counts[0] = 0
	const most = counts.indexOf(extent(counts)[1])
	return counts[most] ? `Most often: ${ds.errors[most].split("\n")[0].slice(0, 200)}` : ""
}

function sureTexts({ workload, ds }) {
	const { equals, best: { ns, low_ns: low, high_ns: high, samples } } = workload
	const from = samples ? ` from ${plural(samples, "sample")}` : ""
	const interval = low == null ? `Too few samples for an interval${from}` : `${nanoseconds(low, 4)} to ${nanoseconds(high, 4)} (±${digits((50 * (high - low)) / ns, 2)} %), 95 % interval${from}`
	const faster = ds?.disputed ? ds.fastest.filter(row => ds.finished[row] && ds.usable[row] < ds.usable[ds.best]).length : 0
	if (faster) return [interval, `${plural(faster, "other config")} had a lower median`]
	const others = equals > 0 ? `${plural(equals, "other config")} tied with it` : equals === 0 ? "No other config is as fast" : ""
	return [interval, others]
}

function costTexts({ workload, ds }) {
	// By the clock, as the sum is; a recorded table only knows the work of its processes.
	const wall = phasesOf(workload.wall)
	// A run says what it cost when it ends.
	const total = workload.cost_s || ds?.columns.cost_s.reduce((all, s) => all + (s || 0), 0)
	const isWork = workload.origin === "table" || !workload.cost_s
	const parts = (isWork ? phasesOf(workload.work) : wall).slice(0, 3).map(([phase, s]) => `${phase} ${seconds(s)}`).join(", ")
	return [`${seconds(total)}${isWork ? " of work" : ""} for ${plural(workload.configs, "config")}`, parts]
}

function gainText({ speedup, typical_ns: typical, best, first }) {
	if (first && configText(first.config) === configText(best.config)) return ", the author's first config"
	if (speedup > 0) return `, ${digits(speedup)}× as fast as the first config${first?.ns > 0 ? ` (${nanoseconds(first.ns)})` : ""}`
	return typical > 0 ? `, ${digits(typical / best.ns)}× as fast as a typical config` : ""
}

function mattersTexts([first, ...rest]) {
	const shown = percent(first.share, 2)
	if (isNoise(first)) return ["Nothing that stands out from noise", `${first.parameter} explains ${shown}, which may be ${percent(first.low, 2)} or ${percent(first.high, 2)}`]
	const others = first.total > 0 ? `, ${percent(first.total, 2)} with others` : ""
	const why = first.total > 2 * first.share ? "Its good value depends on the others. " : ""
	return [`${first.parameter}: ${shown} of the differences by itself${others}`, `${why}${rest.length ? `Then ${rest.slice(0, 2).map(one => one.parameter).join(", ")}` : ""}`]
}

function answerTexts(app) {
	const { workload, importance } = app
	const unit = unitOf(app.state.now.unit, workload)
	const { best } = workload
	const made = { best: ["Nothing has been measured yet", ""], sure: ["–", ""] }
	if (best && best.ns !== null) {
		const worth = unit.label === "time" ? "" : ` = ${inUnit(best.ns, unit, workload)}`
		const faster = gainText(workload)
		made.best = [configText(varied(app.ds, best.config)) || "no parameters", `${nanoseconds(best.ns, 4)}${worth}${faster}`]
		made.sure = sureTexts(app)
	}
	made.failed = failureTexts(app)
	made.matters = importance?.[0] ? mattersTexts(importance) : [importance ? "Too few trials to say" : "Working it out…", ""]
	made.cost = costTexts(app)
	return made
}

// The pick was compared side by side, or there was no time for that; medians alone say something else.
function disputeText({ ds, workload }) {
	const named = row => `${configText(varied(ds, ds.config(row)))} took ${nanoseconds(ds.usable[row])}`
	const why = workload.provisional
		? "the budget ended before the two were compared side by side"
		: "their times are of different moments, and the pick was not beaten side by side"
	const settle = workload.next ? ` To settle it: ${workload.next}.` : ""
	return `The pick is not the fastest seen: the pick, ${named(ds.best)}; the fastest, ${named(ds.quickest)}. Why: ${why}.${settle}`
}

export function drawAnswers(app, parent) {
	parent.hidden = !app.workload
	if (!app.workload) return
	const texts = answerTexts(app)
	const focused = document.activeElement?.closest("[data-answer]")?.dataset.answer
	fill(
		parent,
		QUESTIONS.map(([name, question, place, patchOf]) => {
			const patch = app.ds?.parameters.length > 0 && patchOf(app.ds)
			const go = event => {
				event.preventDefault()
				if (String(getSelection())) return
				app.state.set(patch)
				// Again when what is above it has been drawn.
				for (const ms of [0, 800]) setTimeout(() => document.querySelector(place).scrollIntoView(), ms)
			}
			return el("div.answer", { "data-answer": name, title: texts[name].filter(Boolean).join("\n"), onclick: patch && go },
				el("h2", patch ? el("a", { href: app.state.link(patch) }, `${question} ›`) : question),
				el("p.said", texts[name][0]),
				texts[name][1] && el("p.more", texts[name][1])
			)
		}),
		app.ds?.disputed && !app.ds.ties[app.ds.quickest] && el("p.banner#dispute", { role: "status", text: disputeText(app) })
	)
	if (focused) parent.querySelector(`[data-answer="${focused}"] a`)?.focus()
}
