// Kept where a benchmark reads it: window.whetTimings.

const KEPT = 500

export const timings = { marks: [], last: {}, counts: {} }

export function mark(name, ms) {
	timings.marks.push({ name, ms, at: performance.now() })
	if (timings.marks.length > KEPT) timings.marks.shift()
	timings.last[name] = ms
	timings.counts[name] = (timings.counts[name] || 0) + 1
}

export function timed(name, work) {
	const began = performance.now()
	const answer = work()
	mark(name, performance.now() - began)
	return answer
}

window.whetTimings = timings
