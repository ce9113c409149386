#!/usr/bin/env bash
# Runs examples/ruby/worker.rb at a playground: scripts/ruby-example.sh SCHEDULER FERMATA (the two programs).
set -euo pipefail
cd "$(dirname "$0")/.."
scheduler=$1 fermata=$2
out=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$out"' EXIT

"$scheduler" dev --plain --grpc-addr 127.0.0.1:0 --http-addr 127.0.0.1:0 --rest-addr 127.0.0.1:0 >"$out/dev.log" 2>&1 </dev/null &
for _ in $(seq 600); do
  address=$(sed -n 's/^gRPC  *\([^ ]*\).*/\1/p' "$out/dev.log")
  [ -z "$address" ] || break
  sleep 0.1
done
FERMATA_ADDRESS=$address ruby examples/ruby/worker.rb >"$out/worker.log" 2>&1 </dev/null &
worker=$!
call() { "$fermata" --address "$address" jobs "$@"; }
call create digest --queue mail --handler send-digest --payload ann@example.com >/dev/null
call run digest --wait --wait-timeout 60s | grep -q 'sent to ann@example.com'
call create empty --queue mail --handler send-digest >/dev/null
# A dead run is the exit code 1.
! call run empty --wait --wait-timeout 60s >"$out/empty" 2>&1
grep -q 'no such account' "$out/empty"
kill -TERM "$worker"
wait "$worker"
echo "examples/ruby/worker.rb: a run succeeded, a run ended without a retry, SIGTERM ended the worker with 0"
