#!/usr/bin/env bash
# Checks sdk/python and examples/ruby: generated messages, types, tests with all examples, and the conformance of both
# workers. The conformance checks mostly wait, so that they run beside the tests.
set -euo pipefail
cd "$(dirname "$0")/.."

python=python3
if /usr/bin/python3 -c 'import grpc, pytest' 2>/dev/null; then python=/usr/bin/python3; fi
out=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$out"' EXIT

go test ./sdk/python ./examples/ruby
go build -o "$out/" ./cmd/scheduler ./cmd/fermata
export PYTHONDONTWRITEBYTECODE=1 FERMATA_SCHEDULER_BIN=$out/scheduler

checks=()
in_background() { # in_background NAME COMMAND...
  "${@:2}" >"$out/$1.log" 2>&1 </dev/null &
  checks+=("$1 $!")
}
in_background python-conformance "$out/fermata" worker check -- "$python" sdk/python/conformance/worker.py
in_background ruby-conformance "$out/fermata" worker check --profile minimal -- ruby examples/ruby/check.rb
in_background types mypy --config-file sdk/python/mypy.ini --cache-dir "$out/mypy" sdk/python/fermata
in_background ruby-example scripts/ruby-example.sh "$out/scheduler" "$out/fermata"

status=0
(cd sdk/python && "$python" -m pytest) </dev/null || status=1
for check in "${checks[@]}"; do
  name=${check% *}
  if wait "${check#* }"; then
    echo "$name: $(tail -n 1 "$out/$name.log")"
  else
    status=1
    echo "$name failed:" >&2
    cat "$out/$name.log" >&2
  fi
done
exit "$status"
