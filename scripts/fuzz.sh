#!/usr/bin/env bash
# Runs every fuzz target of the module for a while: fuzz.sh [TIME], default 10s.
# Go fuzzes one target of one package at a time.
set -euo pipefail
cd "$(dirname "$0")/.."

time=${1:-10s}
found=0
for package in $(go list ./...); do
  listing=$(go test -run '^$' -list '^Fuzz' "$package") # fails where the tests do not compile
  for target in $(grep '^Fuzz' <<<"$listing" || true); do
    found=1
    echo "$package $target"
    # Left alone, Go spends up to a minute on making one input smaller.
    go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 1s "$package"
  done
done
if [ "$found" = 0 ]; then
  echo "no fuzz target found" >&2
  exit 1
fi
