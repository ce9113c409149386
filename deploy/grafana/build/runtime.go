package main

func goRuntime() dashboard {
	return newDashboard("runtime", "Go runtime", "Processor, memory and goroutines of nodes and workers.",
		[]variable{processVar},
		part("Process",
			graph("Processor", "short", "Cores used. At the limit, gossip and locks suffer first. Give it more, or add nodes.", series{"{{instance}}", rate("process_cpu_seconds_total", onNode, "instance")}),
			graph("Memory", "bytes", "Resident memory. It grows with connected workers and batches, not with the number of jobs. If it only grows, take a heap profile.", series{"{{instance}}", greatest("process_resident_memory_bytes", onNode, "instance")}),
			graph("Open files", "percentunit", "Share of the limit. Each worker and client uses one. At the limit, connections are refused: raise `ulimit -n`.",
				series{"{{instance}}", greatest("process_open_fds", onNode, "instance") + " / " + greatest("process_max_fds", onNode, "instance")}).warn(.7, .9),
			graph("Uptime", "s", "A drop to zero is a restart. If there was no deploy, read the end of the earlier log.", series{"{{instance}}", `time() - max by (instance) (process_start_time_seconds{` + onNode + `})`}),
		),
		part("Go",
			graph("Goroutines", "short", "About two for each stream and call. If they only grow, there is a leak: take a goroutine profile.", series{"{{instance}}", greatest("go_goroutines", onNode, "instance")}),
			graph("Heap in use", "bytes", "It should return to the same level after each collection. If the level climbs, take a heap profile.", series{"{{instance}}", greatest("go_memstats_heap_inuse_bytes", onNode, "instance")}),
			graph("Garbage collection pauses", "s", "The longest of the last ones. Above 10 ms: the process has too little processor time.", series{"{{instance}}", greatest("go_gc_duration_seconds", onNode+`,quantile=~"1|1.0"`, "instance")}),
			graph("Allocation", "Bps", "Bytes per second. It grows with throughput, which is normal. Compare nodes if one differs.", series{"{{instance}}", rate("go_memstats_alloc_bytes_total", onNode, "instance")}),
			graph("Garbage collections", "ops", "Per second. If there are more than a few, raise GOMEMLIMIT or GOGC.", series{"{{instance}}", rate("go_gc_duration_seconds_count", onNode, "instance")}),
			graph("Threads", "short", "Threads of the operating system. Many: calls block in the kernel, for example on a slow disk.", series{"{{instance}}", greatest("go_threads", onNode, "instance")}),
		),
	)
}
