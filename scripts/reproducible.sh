#!/usr/bin/env bash
# Makes the release of the last commit twice, in two clones at different paths
# with caches, umask, language and time zone of their own, and compares every
# file: reproducible.sh. PLATFORMS chooses what for. Minutes, because nothing
# that one build compiled may serve the other.
set -euo pipefail
cd "$(dirname "$0")/.."

here=$PWD
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT

# release DIR: clones there, builds, and lists all that came out.
release() {
  git clone --quiet --no-checkout "$here" "$1"
  git -C "$1" checkout --quiet --detach "$commit"
  (
    cd "$1"
    export GOCACHE="$work/cache-$(basename "$1")"
    make --silent release image VERSION="$version" SIGN_KEY= >/dev/null # a signature differs each time
    cd dist
    find . -type f | LC_ALL=C sort | xargs sha256sum
  ) >"$work/$(basename "$1").sums"
}

# Of one commit, also where somebody commits meanwhile.
commit=$(git rev-parse HEAD)
version=$(git describe --tags --always --abbrev=12 "$commit")
(umask 022 && TZ=UTC LANG=C release "$work/one")
(umask 077 && TZ=Asia/Kathmandu LANG=de_DE.UTF-8 release "$work/at/a/longer/path/two")

if ! diff "$work/one.sums" "$work/two.sums"; then
  echo "two builds of $version differ" >&2
  exit 1
fi
cat "$work/one.sums"
echo "two builds of $version are the same"
