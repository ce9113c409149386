#!/usr/bin/env bash
# Renews proto/baseline.binpb, the API as last released, which `make verify`
# holds every change against. Run it with a release, or on purpose when the API
# may break; the diff of that commit must say why.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/buf.sh build --exclude-source-info -o proto/baseline.binpb
