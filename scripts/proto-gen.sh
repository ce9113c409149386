#!/usr/bin/env bash
# Generates the Go code of all protos, the OpenAPI document, and the pages of docs/reference about them.
#   proto-gen.sh          writes the code beside the .proto files
#   proto-gen.sh --check  changes nothing; fails if what is there is not current
set -euo pipefail
cd "$(dirname "$0")/.."


# generated prints the generated files below a directory, sorted.
generated() { (cd "$1" && find . \( -name '*.pb.go' -o -name '*.pb.gw.go' -o -name openapi.json \) | sort); }

fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
scripts/buf.sh generate -o "$fresh"
go run ./proto/openapi "$fresh/openapi" >"$fresh/proto/gateway/openapi.json"
generated "$fresh/proto" >"$fresh/want"
generated proto >"$fresh/have"

if [ "${1:-}" != --check ]; then
  comm -13 "$fresh/want" "$fresh/have" | while read -r stale; do rm "proto/$stale"; done
  cp -R "$fresh/proto/." proto/
  cp "$fresh"/docs/reference/*.md docs/reference/
  exit
fi

bad=0
for page in "$fresh"/docs/reference/*.md; do
  diff -u "docs/reference/$(basename "$page")" "$page" || bad=1
done
diff -u "$fresh/have" "$fresh/want" || bad=1
while read -r file; do
  [ -e "proto/$file" ] || continue # reported above
  diff -u "proto/$file" "$fresh/proto/$file" || bad=1
done <"$fresh/want"
if [ "$bad" = 1 ]; then
  echo "generated code is not current: run 'make proto'" >&2
  exit 1
fi
