// Numbers and configs as people read them.

// What turns text around or cannot be seen would make one value look like another.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g

export const plainly = text => String(text).replace(HIDDEN, one => (one === "\r" ? one : `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`))

export function digits(value, count = 3) {
	if (!Number.isFinite(value)) return "–"
	value = Number(value.toPrecision(12))
	if (Number.isInteger(value)) return value.toLocaleString("en-US")
	const size = Math.floor(Math.log10(Math.abs(Number(value.toPrecision(count)))))
	if (size >= count - 1) return Math.round(value).toLocaleString("en-US")
	return value.toFixed(Math.max(0, Math.min(8, count - 1 - size)))
}

// As many digits whatever the value, so that a column of them lines up.
function fixed(value, count = 3) {
	const text = digits(value, count)
	if (!Number.isInteger(value) || value === 0 || Math.abs(value) >= 10 ** (count - 1)) return text
	return value.toFixed(count - String(Math.abs(value)).length)
}

function timeIn(ns, show) {
	if (!Number.isFinite(ns)) return "–"
	const [size, unit] = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]].find(([size]) => ns >= 0.9995 * size) || [1, "ns"]
	return `${show(ns / size)} ${unit}`
}

export const nanoseconds = (ns, count = 3) => timeIn(ns, value => fixed(value, count))

// On an axis, where round values stand.
export const timeTick = ns => timeIn(ns, digits)
export const secondsTick = s => (s ? timeIn(s * 1e9, digits) : "0 s")

export function seconds(s) {
	if (!Number.isFinite(s)) return "–"
	if (s >= 7200) return `${fixed(s / 3600)} h`
	if (s >= 120) return `${fixed(s / 60)} min`
	if (s >= 1 || s === 0) return `${fixed(s)} s`
	return nanoseconds(s * 1e9)
}

// What a trial goes by everywhere: when it was tried.
export const trialName = row => `trial ${row + 1}`

export const counted = n => (Number.isFinite(n) ? Math.round(n).toLocaleString("en-US") : "–")

export const plural = (n, one, many = `${one}s`) => `${counted(n)} ${n === 1 ? one : many}`

export const percent = (share, count) => (Number.isFinite(share) ? `${digits(100 * share, count)} %` : "–")

export const bytesText = n => (n >= 1024 ? `${digits(n / 1024)} KiB` : `${digits(n)} B`)

export const valueText = value => plainly(typeof value === "string" ? value : JSON.stringify(value))

export function configText(config) {
	return Object.entries(config || {})
		.map(([name, value]) => `${/^\d/.test(name) ? "argument " : ""}${name}=${valueText(value)}`)
		.join(" ")
}

// Of a config what is not the same in all of them.
export function varied(ds, config) {
	const told = ds ? Object.entries(config).filter(([name]) => (ds.parameter(name)?.values.length ?? 2) > 1) : []
	return told.length ? Object.fromEntries(told) : config
}

function pythonValue(value) {
	if (value === null) return "None"
	if (typeof value === "boolean") return value ? "True" : "False"
	return Array.isArray(value) ? `(${value.map(pythonValue).join(", ")}${value.length === 1 ? "," : ""})` : JSON.stringify(value)
}

export const pythonText = config => `{${Object.entries(config).map(([name, value]) => `${JSON.stringify(name)}: ${pythonValue(value)}`).join(", ")}}`

// What Triton takes beside the kernel's own parameters.
const TRITON_OPTIONS = ["num_warps", "num_stages", "num_ctas", "maxnreg"]

export function tritonText(config) {
	const own = Object.fromEntries(Object.entries(config).filter(([name]) => !TRITON_OPTIONS.includes(name)))
	const options = TRITON_OPTIONS.filter(name => config[name] != null).map(name => `, ${name}=${pythonValue(config[name])}`)
	return `triton.Config(${pythonText(own)}${options.join("")})`
}

export const keyText = workload => workload.key_text || configText(workload.key)

export const kernelText = ({ kernel, version }) => (version ? `${kernel} ${version}` : kernel)

export const workloadText = workload => [kernelText(workload), keyText(workload), workload.device].filter(Boolean).join(" · ")

const STATUS_TEXTS = {
	ok: "measured",
	untried: "never tried",
	outraced: "stopped early",
	constraint: "excluded by a constraint",
	resources: "out of resources",
	build_error: "build failed",
	build_timeout: "build timed out",
	run_error: "run failed",
	run_timeout: "run timed out",
	wrong_result: "wrong result"
}

const PHASE_NAMES = { build: "building", load: "loading", first_call: "first calls", check: "checking", warmup: "warming up", measure: "measuring", search: "searching", waiting: "waiting for builds", queue: "waiting for others", idle: "overhead" }

// The phases of a ledger, the longest first; its stages are parts of them.
export const phasesOf = ledger => Object.entries(ledger || {})
	.filter(([name, s]) => s > 0 && !name.includes("."))
	.sort((a, b) => b[1] - a[1])
	.map(([name, s]) => [PHASE_NAMES[name] || name, s])

// A parameter whose share may as well be nothing, by itself and with others.
export const isNoise = ({ low, high, total }) => !(low >= 0.005) && !(total > high)

export const statusText = status => STATUS_TEXTS[status] || String(status).replaceAll("_", " ")

const STATUS_GLYPHS = {
	constraint: "∅",
	resources: "R",
	build_error: "B",
	build_timeout: "T",
	run_error: "E",
	run_timeout: "L",
	wrong_result: "≠"
}

export const statusGlyph = status => STATUS_GLYPHS[status] || "✕"

export const isMeasured = status => status === "ok" || status === "outraced"

// What a time is worth in the unit somebody wants to read.
export const UNITS = {
	tflops: { label: "TFLOP/s", more: true, of: (ns, w) => w.flops / ns / 1e3, known: w => w.flops > 0 },
	gbs: { label: "GB/s", more: true, of: (ns, w) => w.bytes / ns, known: w => w.bytes > 0 },
	time: { label: "time", more: false, of: ns => ns, known: () => true }
}

export function unitOf(wanted, workload) {
	const unit = UNITS[wanted]
	if (unit?.known(workload)) return unit
	return UNITS.tflops.known(workload) ? UNITS.tflops : UNITS.time
}

export function inUnit(ns, unit, workload, withUnit = true) {
	if (!Number.isFinite(ns)) return "–"
	if (unit === UNITS.time) return nanoseconds(ns)
	return `${digits(unit.of(ns, workload))}${withUnit ? ` ${unit.label}` : ""}`
}
