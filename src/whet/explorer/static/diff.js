// What differs between two texts, line by line (Myers).

// Beyond this the texts have little in common.
const MOST_EDITS = 3000

// [kind, line] with kind " ", "+" (only in b) or "-" (only in a).
export function diffLines(a, b) {
	let head = 0
	while (head < a.length && head < b.length && a[head] === b[head]) head++
	let tail = 0
	while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++
	const same = line => [" ", line]
	return [
		...a.slice(0, head).map(same),
		...middleDiff(a.slice(head, a.length - tail), b.slice(head, b.length - tail)),
		...a.slice(a.length - tail).map(same)
	]
}

function middleDiff(a, b) {
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
			let y = x - k
			while (x < n && y < m && a[x] === b[y]) {
				x++
				y++
			}
			reach[offset + k] = x
			if (x >= n && y >= m) return walkBack(a, b, trace, d)
		}
	}
	return [...a.map(line => ["-", line]), ...b.map(line => ["+", line])]
}

function walkBack(a, b, trace, edits) {
	const lines = []
	let [x, y] = [a.length, b.length]
	for (let d = edits; d > 0; d--) {
		const before = trace[d]
		const at = k => before[k + d + 1]
		const k = x - y
		const down = k === -d || (k !== d && at(k - 1) < at(k + 1))
		const from = down ? k + 1 : k - 1
		const startX = at(from) + (down ? 0 : 1)
		const startY = at(from) - from + (down ? 1 : 0)
		while (x > startX && y > startY) {
			lines.push([" ", a[x - 1]])
			x--
			y--
		}
		if (down) lines.push(["+", b[--y]])
		else lines.push(["-", a[--x]])
	}
	while (x > 0 && y > 0) {
		lines.push([" ", a[x - 1]])
		x--
		y--
	}
	return lines.reverse()
}
