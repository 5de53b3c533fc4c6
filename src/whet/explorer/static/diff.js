// What differs between two texts, line by line (Myers).

import { button, el } from "./dom.js"
import { plural } from "./format.js"

// Beyond this the texts have little in common.
const MOST_EDITS = 3000

// [kind, line] with kind " ", "+" (only in b) or "-" (only in a).
function diffLines(a, b) {
	const [n, m] = [a.length, b.length]
	const most = Math.min(n + m, MOST_EDITS)
	const offset = most + 1
	const reach = new Int32Array(2 * most + 3)
	const trace = []
	for (let d = 0; d <= most; d++) {
		trace.push(reach.slice(offset - d - 1, offset + d + 2))
		for (let k = -d; k <= d; k += 2) {
			const down = k === -d || (k !== d && reach[offset + k - 1] < reach[offset + k + 1])
			let x = down ? reach[offset + k + 1] : reach[offset + k - 1] + 1
			while (x < n && x - k < m && a[x] === b[x - k]) x++
			reach[offset + k] = x
			if (x >= n && x - k >= m) return walkBack(a, b, trace, d)
		}
	}
	return [...a.map(line => ["-", line]), ...b.map(line => ["+", line])]
}

function walkBack(a, b, trace, edits) {
	const lines = []
	let x = a.length
	let k = x - b.length
	for (let d = edits; d >= 0; d--) {
		const at = k => trace[d][k + d + 1]
		const down = k === -d || (k !== d && at(k - 1) < at(k + 1))
		const start = down ? at(k + 1) : at(k - 1) + 1
		while (x > start) lines.push([" ", a[--x]])
		if (d) lines.push(down ? ["+", b[x - k - 1]] : ["-", a[--x]])
		k += down ? 1 : -1
	}
	return lines.reverse()
}

function foldSame(lines) {
	const near = lines.map((_, i) => lines.slice(Math.max(0, i - 3), i + 4).some(([kind]) => kind !== " "))
	const folded = []
	for (let i = 0; i < lines.length; i++) {
		const next = near.indexOf(true, i)
		const end = next < 0 ? lines.length : next
		if (end > i) folded.push(["…", `${end - i} lines alike`])
		if (end < lines.length) folded.push(lines[end])
		i = end
	}
	return folded
}

export function diffPane(stage, a, b, nameA, nameB) {
	const lines = diffLines(a.split("\n"), b.split("\n"))
	const count = sign => plural(lines.filter(([kind]) => kind === sign).length, "line")
	return [
		el("p.fact", a === b ? `${stage} is the same in both.` : `${stage}: ${count("+")} only in ${nameB} (+), ${count("-")} only in ${nameA} (−).`),
		el("pre.code", { tabindex: "0", "data-ir": stage }, foldSame(lines).map(([kind, text]) => el("span", { class: { "+": "plus", "-": "minus", "…": "soft" }[kind], text: `${kind} ${text}\n` })))
	]
}

export const stageButtons = (view, stages, shown) => stages.map(stage => button(stage, `Show ${stage}`, () => view.set({ ir: stage }), { "aria-pressed": String(stage === shown), "data-stage": stage }))
