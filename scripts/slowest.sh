#!/usr/bin/env bash
# Prints the ten packages whose tests took longest, from the output of `go test` in a file.
# A package whose tests ran in several parts, with and without the race detector for
# instance, counts with the sum of them. Results from the test cache took no time.
set -euo pipefail

echo "slowest packages (seconds of tests, which run beside others):"
awk -F'\t' '
	($1 ~ /^ok *$/ || $1 == "FAIL") && $3 ~ /^[0-9.]+s/ {
		sub(/s.*/, "", $3)
		sub(/^github.com\/fermata-io\/fermata\//, "", $2)
		seconds[$2] += $3
	}
	END { for (p in seconds) printf "%8.1f  %s\n", seconds[p], p }
' "$1" | sort -rn | sed 10q
