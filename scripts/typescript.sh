#!/usr/bin/env bash
# The TypeScript package: generates its messages from proto/, and checks it.
#   typescript.sh          writes sdk/typescript/src/gen
#   typescript.sh --check  fails if the generated code is not current; compiles, and runs the tests against
#                          `scheduler dev` and the conformance kit
#   typescript.sh --trial  the same, and trial T45 of docs/faults.md
#   typescript.sh --worker compiles, and prints the path of the worker that trial T45 starts
set -euo pipefail
cd "$(dirname "$0")/.."
package=sdk/typescript

# The mark of `npm ci` is older than the lock file if a dependency has changed since.
if [ ! "$package/node_modules/.package-lock.json" -nt "$package/package-lock.json" ]; then
  npm ci --prefix "$package" --no-fund --no-audit --loglevel=error >&2
  touch "$package/node_modules/.package-lock.json"
fi

generate() { # into a directory
  scripts/buf.sh generate --template "$package/buf.gen.yaml" -o "$1"
}

compile() { (
  cd "$package"
  rm -rf dist build
  npx --no-install tsc -p tsconfig.build.json >&2
  npx --no-install tsc -p tsconfig.json >&2
); }
worker=$PWD/$package/build/test/programs/acceptance.js

if [ "${1:-}" = --worker ]; then
  compile
  echo "$worker"
  exit
fi

if [ "${1:-}" != --check ] && [ "${1:-}" != --trial ]; then
  rm -rf "$package/src/gen"
  generate .
  exit
fi

fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
generate "$fresh"
if ! diff -rq "$package/src/gen" "$fresh/$package/src/gen" >&2; then
  echo "$package/src/gen is not current: run scripts/typescript.sh" >&2
  exit 1
fi

export FERMATA_BIN=$PWD/dist/sdk
go build -o "$FERMATA_BIN/" ./cmd/scheduler ./cmd/fermata
compile
cd "$package"
"$FERMATA_BIN/fermata" worker check -- node build/conformance/worker.js >"$fresh/conformance.log" 2>&1 &
conformance=$!
status=0
node --test build/test/*.test.js >"$fresh/tests.log" 2>&1 || status=1
grep '^# \(tests\|pass\|fail\)' "$fresh/tests.log" || true
[ "$status" = 0 ] || cat "$fresh/tests.log"
if wait "$conformance"; then tail -n 1 "$fresh/conformance.log"; else cat "$fresh/conformance.log"; status=1; fi
cd ../..
if [ "$1" = --trial ]; then
  export FERMATA_TYPESCRIPT_WORKER=$worker
  go test -count=1 -timeout 10m -run '^TestChaosMixedWorkers$' ./internal/test/acceptance || status=1
fi
exit "$status"
