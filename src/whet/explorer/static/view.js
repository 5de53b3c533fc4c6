// What every view has.

export class View {
	constructor(app, root) {
		this.app = app
		this.root = root
		for (const name of ["ds", "workload", "workloads", "importance", "source"]) Object.defineProperty(this, name, { get: () => app[name] })
	}

	get now() {
		return this.app.state.now
	}
	get chosen() {
		return this.app.selection()
	}
	set(patch) {
		this.app.state.set(patch)
	}
	open(row) {
		this.set({ row, view: "trial" })
	}
}
