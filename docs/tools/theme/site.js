// Light or dark, the menu of a narrow window, copying code, and a search that needs no server.

const base = document.currentScript.dataset.base
const root = document.documentElement

// Pages from disk may be forbidden to keep anything.
const kept = {
	get theme() { try { return localStorage.getItem("theme") } catch { return null } },
	set theme(name) { try { localStorage.setItem("theme", name) } catch { /* for this page only */ } }
}
if (kept.theme) root.dataset.theme = kept.theme

document.addEventListener("DOMContentLoaded", () => {
	const menu = document.getElementById("menu")
	menu.onclick = () => menu.setAttribute("aria-expanded", String(document.body.classList.toggle("menu")))
	document.getElementById("theme").onclick = () => {
		const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches
		root.dataset.theme = kept.theme = dark ? "light" : "dark"
	}
	document.querySelector("#pages [aria-current]")?.scrollIntoView({ block: "nearest" })
	for (const code of document.querySelectorAll("pre")) copyable(code)
	for (const box of document.querySelectorAll("pre, .scroll")) if (box.scrollWidth > box.clientWidth) box.tabIndex = 0
	followHeadings()
	new Search(document.getElementById("search"))
})

function copyable(pre) {
	const button = document.createElement("button")
	button.textContent = "Copy"
	button.onclick = async () => {
		const lines = pre.textContent.trimEnd().split("\n")
		// Of a session at a terminal, what was typed.
		const typed = lines.filter(line => line.startsWith("$ ")).map(line => line.slice(2))
		await navigator.clipboard.writeText((typed.length ? typed : lines).join("\n"))
		button.textContent = "Copied"
		setTimeout(() => (button.textContent = "Copy"), 1500)
	}
	const holder = document.createElement("div")
	holder.className = "code"
	pre.replaceWith(holder)
	holder.append(pre, button)
}

function followHeadings() {
	const links = [...document.querySelectorAll("#headings a")]
	const headings = links.map(link => document.getElementById(decodeURIComponent(link.hash.slice(1)))).filter(Boolean)
	const follow = () => {
		const above = headings.filter(heading => heading.getBoundingClientRect().top < 120).length
		links.forEach((link, i) => link.classList.toggle("seen", i === above - 1))
	}
	addEventListener("scroll", follow, { passive: true })
	follow()
}

const MOST_FOUND = 12

class Search {
	constructor(form) {
		this.input = form.querySelector("input")
		this.list = form.querySelector("ul")
		this.input.onfocus = () => this.load()
		this.input.oninput = () => this.show()
		form.onkeydown = event => this.key(event)
		form.onsubmit = event => {
			event.preventDefault()
			this.list.querySelector("a")?.click()
		}
		document.addEventListener("click", event => form.contains(event.target) || this.close())
		document.addEventListener("keydown", event => {
			if (event.key !== "/" || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return
			event.preventDefault()
			this.input.focus()
		})
	}

	// A script, since a page from disk may not fetch; only for whoever searches.
	load() {
		if (this.script) return
		this.script = document.createElement("script")
		this.script.src = `${base}/search/index.js`
		this.script.onload = () => {
			const { docs } = window.searchIndex
			this.pages = new Map(docs.map(one => [one.location, one.title]))
			// A page is there as a whole too.
			this.sections = docs
				.filter(one => one.location.includes("#"))
				.map(one => ({ ...one, low: one.text.toLowerCase(), head: one.title.toLowerCase() }))
			this.show()
		}
		document.head.append(this.script)
	}

	// Every word has to be there; one in a title counts most.
	find(words) {
		const found = []
		for (const one of this.sections) {
			let worth = 0
			for (const word of words) {
				const times = one.low.split(word).length - 1
				const titled = one.head.includes(word)
				if (!times && !titled) {
					worth = 0
					break
				}
				const whole = one.head.split(/[^\p{L}\p{N}_]+/u).includes(word)
				worth += (titled ? 8 : 0) + (whole ? 8 : 0) + Math.log2(1 + times)
			}
			if (!worth) continue
			if (words.length > 1 && `${one.head} ${one.low}`.includes(words.join(" "))) worth += 6
			if (one.location.startsWith("changelog")) worth /= 4
			found.push({ ...one, worth })
		}
		return found.sort((a, b) => b.worth - a.worth).slice(0, MOST_FOUND)
	}

	show() {
		const words = this.input.value.toLowerCase().split(/\s+/).filter(Boolean)
		if (!this.sections || !words.length) return this.close()
		const found = this.find(words)
		this.list.replaceChildren(...found.map(one => this.line(one, words)))
		if (!found.length) this.list.append(Object.assign(document.createElement("li"), { textContent: "Nothing found." }))
		this.list.hidden = false
	}

	line(one, words) {
		const item = document.createElement("li")
		const link = document.createElement("a")
		link.href = `${base}/${one.location}`
		link.onclick = () => this.close()
		const head = document.createElement("b")
		const page = this.pages.get(one.location.split("#")[0])
		head.textContent = page && page !== one.title ? `${page} › ${one.title}` : one.title
		link.append(head, ...this.excerpt(one, words))
		item.append(link)
		return item
	}

	excerpt({ text, low }, words) {
		const at = Math.max(0, Math.min(...words.map(word => low.indexOf(word)).filter(at => at >= 0), text.length) - 50)
		const part = (at ? "…" : "") + text.slice(at, at + 160) + (text.length > at + 160 ? "…" : "")
		const pattern = new RegExp(`(${words.map(word => word.replace(/[^\p{L}\p{N}_]/gu, "\\$&")).join("|")})`, "i")
		return part.split(pattern).map((piece, i) => {
			if (i % 2 === 0) return piece
			const mark = document.createElement("mark")
			mark.textContent = piece
			return mark
		})
	}

	// From the words down to what was found, and back.
	key(event) {
		const places = [this.input, ...this.list.querySelectorAll("a")]
		const step = { ArrowDown: 1, ArrowUp: -1 }[event.key]
		if (event.key === "Escape") this.close()
		if (!step || this.list.hidden) return
		event.preventDefault()
		places[(places.indexOf(document.activeElement) + step + places.length) % places.length].focus()
	}

	close() {
		this.list.hidden = true
	}
}
