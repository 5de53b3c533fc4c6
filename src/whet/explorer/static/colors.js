// Scales for any colour vision, in light and dark.

const VIRIDIS = [
	[68, 1, 84], [72, 36, 117], [65, 68, 135], [53, 95, 141], [42, 120, 142], [33, 145, 140],
	[34, 168, 132], [68, 191, 112], [122, 209, 81], [189, 223, 38], [253, 231, 37]
]

// Okabe and Ito's set, without black and the yellow that vanishes on white.
export const SERIES = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#8c6bb1", "#7f7f7f"]

export function viridis(share) {
	const at = Math.max(0, Math.min(1, share)) * (VIRIDIS.length - 1)
	const low = Math.floor(at)
	const rest = at - low
	const a = VIRIDIS[low]
	const b = VIRIDIS[Math.min(low + 1, VIRIDIS.length - 1)]
	return [0, 1, 2].map(i => Math.round(a[i] + rest * (b[i] - a[i])))
}

export const rgb = ([r, g, b], alpha = 1) => (alpha === 1 ? `rgb(${r},${g},${b})` : `rgba(${r},${g},${b},${alpha})`)

// Black or white, whichever stands out more: at least 4.5 to 1 on any ground.
export function inkOn(color) {
	const [r, g, b] = (typeof color === "string" ? [1, 3, 5].map(i => parseInt(color.slice(i, i + 2), 16)) : color).map(linear)
	return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000000" : "#ffffff"
}

function linear(level) {
	const share = level / 255
	return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4
}

let themeRead = null
let styled = document.documentElement

// In a page of others, the element that has our colours.
export function themeOf(element) {
	styled = element
	themeRead = null
}

export function theme() {
	if (!themeRead) {
		const style = getComputedStyle(styled)
		const read = name => style.getPropertyValue(`--${name}`).trim()
		const names = ["ink", "soft", "line", "panel", "accent", "faint", "bad", "edge"]
		themeRead = { ...Object.fromEntries(names.map(name => [name, read(name)])), dark: read("scheme") === "dark" }
	}
	return themeRead
}

export function forgetTheme() {
	themeRead = null
}
