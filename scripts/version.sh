#!/usr/bin/env bash
# Prints the version of the checkout: its tag, or the last tag with the commit.
#   version.sh          v1.4.0, v1.4.0-3-g1a2d10f4c7b2, 1a2d10f4c7b2-dirty, dev
#   version.sh commit   the whole commit, or nothing outside of a repository
#   version.sh epoch    when that commit was made, in seconds since 1970, or 0
set -euo pipefail
cd "$(dirname "$0")/.."

case ${1:-} in
  commit) git rev-parse HEAD 2>/dev/null || true ;;
  epoch) git log -1 --format=%ct 2>/dev/null || echo 0 ;;
  # Left alone, git shortens a commit as far as the size of the clone allows.
  *) git describe --tags --always --dirty --abbrev=12 2>/dev/null || echo dev ;;
esac
