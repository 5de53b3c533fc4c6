// Kept where a benchmark reads it: window.whetTimings.

export const timings = { first: {}, last: {}, counts: {} }

export function mark(name, ms) {
	timings.first[name] ??= performance.now()
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
