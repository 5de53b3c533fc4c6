// What every view has.

// Of a store without a trial.
export const EMPTY = "The store is empty. Tune something and it appears here, while it runs:"
export const COMMANDS = "whet demo                tune a matrix product on this machine\nwhet explore --sample    look at measurements of an H200"

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
