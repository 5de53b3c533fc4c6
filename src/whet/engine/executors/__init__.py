"""Where builds and measurements of a run happen: this process, a process per device, a cluster."""
