// Pictures of charts to hand on: SVG, and PNG at twice the size, with what tells what they show.

import { FONT, SMALL_FONT } from "./canvas.js"
import { theme, rgb, viridis } from "./colors.js"
import { el, save } from "./dom.js"
import { plainly } from "./format.js"

const EDGE = 14
const KEPT = ["fillStyle", "strokeStyle", "lineWidth", "globalAlpha", "font", "textAlign", "clipping", "dash", "matrix"]
const escaped = text => plainly(text).replace(/[&<>"]/g, one => `&#${one.charCodeAt(0)};`)

// What a chart asks of a canvas, written down as SVG.
class SvgPen {
	constructor(canvas) {
		this.measure = canvas.getContext("2d")
		Object.assign(this, { canvas, parts: [], past: [], path: "", clipping: "", clips: 0, dash: "", matrix: "", globalAlpha: 1, lineWidth: 1, font: FONT, textAlign: "left" })
	}

	save() {
		this.past.push(KEPT.map(name => this[name]))
	}
	restore() {
		const kept = this.past.pop()
		KEPT.forEach((name, i) => (this[name] = kept[i]))
	}
	translate(x, y) {
		this.matrix += `translate(${x} ${y}) `
	}
	rotate(turn) {
		this.matrix += `rotate(${(turn * 180) / Math.PI}) `
	}
	setLineDash(dash) {
		this.dash = dash.join(" ")
	}
	measureText(text) {
		this.measure.font = this.font
		return this.measure.measureText(text)
	}
	beginPath() {
		this.path = ""
	}
	moveTo(x, y) {
		this.path += `M${tidied(x)} ${tidied(y)}`
	}
	lineTo(x, y) {
		this.path += `${this.path ? "L" : "M"}${tidied(x)} ${tidied(y)}`
	}
	bezierCurveTo(...at) {
		this.path += `C${at.map(tidied).join(" ")}`
	}
	closePath() {
		this.path += "Z"
	}
	// Whole circles only.
	arc(x, y, r) {
		this.path += `M${tidied(x - r)} ${tidied(y)}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`
	}
	rect(x, y, w, h) {
		this.path += `M${tidied(x)} ${tidied(y)}h${tidied(w)}v${tidied(h)}h${tidied(-w)}Z`
	}
	roundRect(x, y, w, h) {
		this.rect(x, y, w, h)
	}
	clip() {
		this.parts.push(`<clipPath id="clip${++this.clips}"><path d="${this.path}"/></clipPath>`)
		this.clipping = ` clip-path="url(#clip${this.clips})"`
	}
	put(tag, rest) {
		const moved = this.matrix ? ` transform="${this.matrix.trim()}"` : ""
		const faint = this.globalAlpha < 1 ? ` opacity="${this.globalAlpha}"` : ""
		this.parts.push(`<g${this.clipping}><${tag}${moved}${faint} ${rest}</g>`)
	}
	fill() {
		this.put("path", `d="${this.path}" fill="${this.fillStyle}"/>`)
	}
	stroke() {
		this.put("path", `d="${this.path}" fill="none" stroke="${this.strokeStyle}" stroke-width="${this.lineWidth}"${this.dash ? ` stroke-dasharray="${this.dash}"` : ""}/>`)
	}
	fillRect(x, y, w, h) {
		this.put("rect", `x="${tidied(x)}" y="${tidied(y)}" width="${tidied(Math.max(0, w))}" height="${tidied(Math.max(0, h))}" fill="${this.fillStyle}"/>`)
	}
	strokeRect(x, y, w, h) {
		this.beginPath()
		this.rect(x, y, w, h)
		this.stroke()
	}
	fillText(text, x, y) {
		const anchor = { center: "middle", right: "end" }[this.textAlign] || "start"
		this.put("text", `x="${tidied(x)}" y="${tidied(y)}" text-anchor="${anchor}" dominant-baseline="central" style="font:${escaped(this.font)}" fill="${this.fillStyle}">${escaped(text)}</text>`)
	}
	drawImage(image, x, y, w, h) {
		this.put("image", `x="${x}" y="${y}" width="${w}" height="${h}" href="${image.toDataURL()}"/>`)
	}
}

const tidied = value => Math.round(value * 100) / 100

// The chart with `told` above it, and the legend that the page has beside it.
function compose(pen, chart, { title, lines, legend }) {
	const wide = chart.wide + 2 * EDGE
	const { ink, soft, panel } = theme()
	const put = (text, x, y, color) => {
		pen.fillStyle = color
		pen.fillText(text, x, y)
	}
	const flow = (items, room) => {
		const rows = [[]]
		let at = 0
		for (const one of items) {
			const long = pen.measureText(one.text).width + (one.lead || 0)
			if (at && at + long > room) at = rows.push([]) * 0
			rows.at(-1).push({ ...one, x: EDGE + at })
			at += long + one.gap
		}
		return rows
	}
	const split = (line, gap) => flow(line.split(" ").map(text => ({ text, gap })), chart.wide)
	pen.font = `600 ${FONT}`
	const titles = split(title, 4)
	pen.font = SMALL_FONT
	const words = lines.flatMap(line => split(line, 3.5))
	const marks = flow(legend.map(one => ({ ...one, lead: one.stops ? 96 : one.color ? 16 : 0, gap: 14 })), chart.wide)
	const below = 16 + 18 * titles.length
	const head = below + 16 * words.length
	const high = head + chart.high + 14 + 18 * (legend.length ? marks.length : 0)
	const draw = () => {
		pen.textBaseline = "middle"
		pen.textAlign = "left"
		pen.fillStyle = panel
		pen.fillRect(0, 0, wide, high)
		pen.font = `600 ${FONT}`
		titles.forEach((row, i) => row.forEach(one => put(one.text, one.x, 16 + 18 * i, ink)))
		pen.font = SMALL_FONT
		words.forEach((row, i) => row.forEach(one => put(one.text, one.x, below + 2 + 16 * i, soft)))
		marks.forEach((row, i) => row.forEach(one => {
			const y = head + chart.high + 12 + 18 * i
			if (one.stops) for (let k = 0; k < 30; k++) {
				pen.fillStyle = rgb(viridis(k / 29))
				pen.fillRect(one.x + 3 * k, y - 5, 3.2, 10)
			} else if (one.color) {
				pen.fillStyle = one.color
				for (const at of one.dashed ? [0, 4, 8] : [0]) pen.fillRect(one.x + at, y - 5, one.dashed ? 3 : 11, 10)
			}
			put(one.text, one.x + one.lead, y, soft)
		}))
		pen.save()
		pen.translate(EDGE, head)
		chart.drawWith(pen)
		pen.restore()
	}
	return { wide, high, draw }
}

export function saveSvg(chart, told, name) {
	const pen = new SvgPen(chart.canvas)
	const { wide, high, draw } = compose(pen, chart, told)
	draw()
	const text = `<svg xmlns="http://www.w3.org/2000/svg" width="${wide}" height="${high}" viewBox="0 0 ${wide} ${high}"><title>${escaped(`${told.title}: ${told.lines[0] || ""}`)}</title>${pen.parts.join("\n")}</svg>`
	save(new Blob([text], { type: "image/svg+xml" }), `${name}.svg`)
}

export function savePng(chart, told, name) {
	const canvas = el("canvas")
	const pen = canvas.getContext("2d")
	const { wide, high, draw } = compose(pen, chart, told)
	Object.assign(canvas, { width: 2 * wide, height: 2 * high })
	pen.scale(2, 2)
	draw()
	canvas.toBlob(blob => save(blob, `${name}.png`))
}

// The legend as the page shows it: swatches, signs and the gradient.
export function legendOf(root) {
	return [...root.querySelectorAll(".legend > span, .legend > button")].map(one => {
		const box = one.querySelector(".swatch")
		const text = [...one.childNodes].map(part => part.textContent.trim()).filter(Boolean).join(" ")
		if (one.querySelector(".gradient")) return { text, stops: true }
		return { text, dashed: box?.style.background.includes("repeating"), color: box && (/rgb[^)]*\)|#\w+/.exec(box.style.background) || [theme().soft])[0] }
	})
}
