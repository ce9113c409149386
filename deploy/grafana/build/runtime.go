package main

func goRuntime() dashboard {
	return newDashboard("runtime", "Go runtime", "Processor, memory and goroutines of nodes and workers.", []variable{processVar},
		part("Process",
			graph("Processor", "short", "Cores used. At its limit: gossip and locks suffer first. Give it more, or add nodes.", series{"{{instance}}", rate("process_cpu_seconds_total", onNode, "instance")}),
			graph("Memory", "bytes", "Resident. Grows with connected workers and batches, not with the number of jobs. If it only grows: take a heap profile.", series{"{{instance}}", greatest("process_resident_memory_bytes", onNode, "instance")}),
			graph("Open files", "percentunit", "Share of the limit; each worker and client is one. At the limit, connections are refused: raise `ulimit -n`.",
				series{"{{instance}}", greatest("process_open_fds", onNode, "instance") + " / " + greatest("process_max_fds", onNode, "instance")}).warn(.7, .9),
			graph("Up since", "s", "A drop to zero is a restart. Without a deploy at that time: read the end of its former log.", series{"{{instance}}", `time() - max by (instance) (process_start_time_seconds{` + onNode + `})`}),
		),
		part("Go",
			graph("Goroutines", "short", "About two for each stream and call. If they only grow: a leak; take a goroutine profile.", series{"{{instance}}", greatest("go_goroutines", onNode, "instance")}),
			graph("Heap in use", "bytes", "After a collection the saw tooth should return to the same level. If the level climbs: take a heap profile.", series{"{{instance}}", greatest("go_memstats_heap_inuse_bytes", onNode, "instance")}),
			graph("Pauses of the collector", "s", "The longest of the last ones. Above 10 ms: the process has too little processor time.", series{"{{instance}}", greatest("go_gc_duration_seconds", onNode+`,quantile=~"1|1.0"`, "instance")}),
			graph("Allocation", "Bps", "Bytes a second. Grows with throughput; by itself no cause for worry.", series{"{{instance}}", rate("go_memstats_alloc_bytes_total", onNode, "instance")}),
			graph("Collections", "ops", "A second. More than a few: raise GOMEMLIMIT or GOGC.", series{"{{instance}}", rate("go_gc_duration_seconds_count", onNode, "instance")}),
			graph("Threads", "short", "Of the operating system. Many: calls that block in the kernel.", series{"{{instance}}", greatest("go_threads", onNode, "instance")}),
		),
	)
}
