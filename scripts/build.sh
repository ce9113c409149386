#!/usr/bin/env bash
# Builds all commands into a directory: build.sh DIR. GOOS and GOARCH choose
# another platform, VERSION another version.
#
# What is not given to the compiler cannot make two builds of one commit differ:
# no paths of this machine (-trimpath), no C library, no state of the checkout
# (-buildvcs; the version says the commit), no processor of the builder's taste.
# What is hot in production the compiler knows from hot.pgo (`make pgo`).
set -euo pipefail
cd "$(dirname "$0")/.."

dir=${1:?directory}
version=${VERSION:-$(scripts/version.sh)}
mkdir -p "$dir"
CGO_ENABLED=0 GOAMD64=v1 GOARM64=v8.0 GOFIPS140=off GOWORK=off GOFLAGS=-mod=readonly \
  go build -pgo=scripts/hot.pgo -trimpath -buildvcs=false -ldflags "-s -w -X main.buildVersion=$version" -o "$dir/" ./cmd/...
