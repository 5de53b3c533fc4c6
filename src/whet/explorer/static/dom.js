// Elements, always filled with text and never with markup.

import { plainly } from "./format.js"

// `el("p.soft#id", {title}, child, …)`; what is no plain object is a child.
export function el(name, attributes, ...children) {
	const [, tag, rest] = /^(\w+)(.*)$/.exec(name)
	const made = document.createElement(tag)
	for (const part of rest.match(/[.#][\w-]+/g) || []) {
		if (part[0] === "#") made.id = part.slice(1)
		else made.classList.add(part.slice(1))
	}
	const plain = attributes && Object.getPrototypeOf(attributes) === Object.prototype
	for (const [key, value] of Object.entries(plain ? attributes : {})) {
		if (value == null || value === false) continue
		if (key === "text") made.textContent = plainly(value)
		else if (key === "class") made.className = value
		else if (key.startsWith("on")) made.addEventListener(key.slice(2), value)
		else if (key === "value") made.value = value
		else made.setAttribute(key, value === true ? "" : key === "title" || key === "aria-label" ? plainly(value) : value)
	}
	return add(made, plain ? children : [attributes, ...children])
}

export function add(parent, children) {
	for (const child of children.flat(3)) {
		if (child == null || child === false) continue
		parent.append(child instanceof Node ? child : plainly(child))
	}
	return parent
}

export function fill(parent, ...children) {
	parent.replaceChildren()
	return add(parent, children)
}

// What words mean, as soon as that is read.
export const glossary = {}

// What is heard has what is seen in it.
export function button(text, title, onclick, attributes = {}) {
	const heard = !/[a-z]/i.test(text) || ` ${title} `.toLowerCase().includes(` ${text} `.toLowerCase())
	return el("button", { type: "button", text, title, "aria-label": heard ? title : `${text}: ${title}`, onclick, ...attributes })
}

export function select(label, options, value, changed, attributes = {}) {
	const list = el("select", { "aria-label": label, onchange: () => changed(list.value), ...attributes })
	for (const [key, text] of options) list.append(el("option", { value: key, text }))
	list.value = value
	return list
}

export function labelled(text, control) {
	return el("label.labelled", el("span", text), control)
}

export function save(blob, name) {
	const link = el("a", { href: URL.createObjectURL(blob), download: name })
	document.body.append(link)
	link.click()
	link.remove()
	setTimeout(() => URL.revokeObjectURL(link.href), 10000)
}

// The clipboard's own interface is for pages of https and of this machine only.
export async function copy(text) {
	try {
		await navigator.clipboard.writeText(text)
	} catch {
		const area = el("textarea", { value: text })
		document.body.append(area)
		area.select()
		document.execCommand("copy")
		area.remove()
	}
}

function csvCell(value) {
	if (value == null || Number.isNaN(value)) return ""
	let text = String(value)
	// A spreadsheet would take such text for a formula.
	if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = `'${text}`
	return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
}

export function saveCsv(rows, name) {
	const parts = []
	for (let at = 0; at < rows.length; at += 10000) {
		parts.push(rows.slice(at, at + 10000).map(row => `${row.map(csvCell).join(",")}\n`).join(""))
	}
	save(new Blob(parts, { type: "text/csv" }), name)
}

// What pictures and files are told of, filled in by whoever knows: a line of words, and a name.
export const sheet = { told: () => ({ title: "", lines: [] }), keep: {} }

const slug = text => plainly(text).replace(/[^\p{L}\p{N}.=_-]+/gu, "-").replace(/^-+|-+$/g, "").slice(0, 120)

// `shows` is what a chart shows at the moment, where its title does not say it.
export function figure({ id, title, line = "", chart, csv, shows = () => title }) {
	const tools = el("div.controls")
	const caption = el("p.line", line)
	const body = el("div")
	const drawn = chart && chart(body)
	const keep = (kind, act) => act && button(kind.toUpperCase(), `Save '${title}' as ${kind.toUpperCase()}`, act, { class: "quiet", "data-export": kind })
	const name = () => slug([sheet.told().name, shows()].filter(Boolean).join(" "))
	const picture = kind => keep(kind, drawn && (() => {
		sheet.keep[kind](drawn, { title: shows(), lines: [...sheet.told().lines, caption.textContent].filter(Boolean), legend: sheet.keep.legend(root) }, name())
	}))
	const head = el("header", el("h2", title), el("div.tools", tools, picture("png"), picture("svg"), keep("csv", csv || (drawn && (() => drawn.csv(name()))))))
	const root = el("section.figure", { id, "aria-label": title }, head, caption, body)
	return { root, body, caption, tools, chart: drawn }
}

export function swatch(color, text) {
	const box = el("i.swatch")
	box.style.background = color
	return el("span", box, text)
}

export function sign(glyph, text, kind = "") {
	return el("span", { class: kind }, el("i.glyph", glyph), text)
}

export const opens = (act, name) => ({ tabindex: "0", "aria-label": name, onclick: act, onkeydown: event => event.key === "Enter" && act() })

export const numberCells = texts => texts.map(text => el("td.number", text))

export const headCells = (texts, rest = "", end = texts.length) => el("thead", el("tr", texts.map((text, i) => el("th", { class: i && i < end ? rest : "" }, text))))

export const listing = (label, head, rows, end) => el("div.scroll", { tabindex: "0", "aria-label": label }, el("table.rows", headCells(head, "number", end), el("tbody", rows)))

// A heading that sorts its column: up, down, and where `back` says so not at all.
export function sortHeading(text, name, order, numeric, act, back = name) {
	const falling = order === `-${name}`
	const sorted = falling || order === name
	const next = falling ? back : sorted ? `-${name}` : name
	return el("th", { class: numeric ? "number" : "", "aria-sort": sorted && (falling ? "descending" : "ascending") }, button(`${text}${sorted ? (falling ? " ▾" : " ▴") : ""}`, `Sort by ${text}${glossary[text] ? `: ${glossary[text]}` : ""}`, () => act(next), { class: "plain" }))
}

export const facts = texts => texts.filter(Boolean).map(text => el("p.fact", text))

export const clamp = (value, low, high) => Math.max(low, Math.min(high, value))

let tipElement = null

// Beside the pointer, or beside whatever has the keyboard's focus.
export function showTip(x, y, lines) {
	if (!tipElement) {
		tipElement = el("div#tip", { role: "tooltip" })
		document.body.append(tipElement)
	}
	fill(
		tipElement,
		lines.filter(Boolean).map(one =>
			Array.isArray(one)
				? one[1] !== "" && el("div.tip-row", el("span", one[0]), el("b", { text: one[1] }))
				: el("div.tip-head", one)
		)
	)
	tipElement.hidden = false
	const box = tipElement.getBoundingClientRect()
	const left = x + 14 + box.width > innerWidth ? x - box.width - 14 : x + 14
	const top = Math.min(y + 14, innerHeight - box.height - 4)
	tipElement.style.left = `${Math.max(4, left)}px`
	tipElement.style.top = `${Math.max(4, top)}px`
}

// For who hears the page: where the cursor of a chart is.
export const announce = lines => {
	document.getElementById("announced").textContent = lines.filter(Boolean).map(one => [one].flat().filter(Boolean).join(" ")).join(", ")
}

export function hideTip() {
	if (tipElement) tipElement.hidden = true
}

export function note(text, kind = "empty") {
	return el("p", { class: `note ${kind}`, role: kind === "bad" ? "alert" : "status", text })
}
