#!/usr/bin/env bash
# Builds the web console: its API client from the OpenAPI document, and its bundle from console/src.
#   console.sh          writes console/src/api/generated.ts and console/dist
#   console.sh --check  changes nothing; fails if what is there is not current, checks the types if npx is here
set -euo pipefail
cd "$(dirname "$0")/.."

typescript=typescript@7.0.2 # of the type check; the bundle does not depend on it
budget=122880               # bytes of the bundle, compressed with gzip

fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT

go run ./console/apigen >"$fresh/generated.ts"
if [ "${1:-}" != --check ]; then
  cp "$fresh/generated.ts" console/src/api/generated.ts
elif ! cmp -s "$fresh/generated.ts" console/src/api/generated.ts; then
  echo "console/src/api/generated.ts is not current: run 'make console'" >&2
  exit 1
fi

mkdir "$fresh/dist"
go tool -modfile=tools/go.mod esbuild console/src/main.tsx --bundle --format=esm --target=es2022,chrome123,firefox120,safari17.5 \
  --minify --charset=utf8 --legal-comments=none --tsconfig=console/tsconfig.json --log-level=warning \
  --outfile="$fresh/dist/console.js"
cp console/src/index.html console/src/icon.svg "$fresh/dist/"
{
  echo "The console contains these packages:"
  for package in preact preact-signals preact-signals-core js-yaml; do
    printf '\n== %s\n\n' "$package"
    cat "console/vendor/$package/LICENSE"
  done
} >"$fresh/dist/licenses.txt"

size=$(for f in "$fresh"/dist/*; do gzip -9nc "$f"; done | wc -c)
if [ "$size" -gt "$budget" ]; then
  echo "the console has $size bytes compressed, more than the $budget of its budget" >&2
  exit 1
fi
if [ "${1:-}" != --check ]; then
  rm -rf console/dist
  cp -R "$fresh/dist" console/dist
  echo "console: $size bytes compressed"
  exit
fi
if ! diff -rq console/dist "$fresh/dist" >&2; then
  echo "console/dist is not current: run 'make console'" >&2
  exit 1
fi
if command -v npx >/dev/null; then
  npx --yes -p "$typescript" tsc -p console
else
  echo "console: npx is not here, so the types are not checked"
fi
