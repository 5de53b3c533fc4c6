// What every view has.

// Whether something was changed on which a drawing depends; null is everything.
export const any = (changed, text) => !changed || text.split(" ").some(key => changed.has(key))

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
