#!/usr/bin/env bash
# Runs buf, which lints, compares and generates from proto/: buf.sh ARGS. Its program comes from npm, in the version and
# with the checksum of tools/buf/package-lock.json: compiling it takes longer than compiling Fermata.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
package=$root/tools/buf

# The mark of `npm ci` is older than the lock file if the version has changed since.
if [ ! "$package/node_modules/.package-lock.json" -nt "$package/package-lock.json" ]; then
  command -v npm >/dev/null || { echo "buf.sh: buf comes from npm, which is missing: run 'make deps'" >&2; exit 1; }
  npm ci --prefix "$package" --ignore-scripts --no-fund --no-audit --loglevel=error >&2
  touch "$package/node_modules/.package-lock.json"
fi
exec "$package/node_modules/.bin/buf" "$@"
