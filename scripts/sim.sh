#!/usr/bin/env bash
# Plays seeds of the simulated cluster: scripts/sim.sh FIRST COUNT. One process a
# processor, because bubbles in one process keep each other waiting.
set -euo pipefail
cd "$(dirname "$0")/.."
first=$1 count=$2
sides=$(getconf _NPROCESSORS_ONLN)
((sides <= count)) || sides=$count

mkdir -p bin
go test -c -o bin/sim.test ./internal/test/sim
pids=()
for ((i = 0; i < sides; i++)); do
	from=$((first + count * i / sides)) to=$((first + count * (i + 1) / sides))
	GOMAXPROCS=1 FERMATA_SIM_SEED=$from FERMATA_SIM_SEEDS=$((to - from)) \
		bin/sim.test -test.v -test.timeout 600m -test.run '^TestSimulation$' |
		{ grep -v '^ *---\|^=== ' || true; } &
	pids+=($!)
done
status=0
for pid in "${pids[@]}"; do
	wait "$pid" || status=1
done
exit "$status"
