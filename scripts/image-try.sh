#!/usr/bin/env bash
# Runs the image for this machine as Kubernetes' restricted profile would, without
# a container engine: read-only root, user 65532, no capabilities, no new
# privileges. Each command says its version there, and a playground of node, worker
# and embedded Redis has to run a job. Needs root on Linux, and what `make image`
# made.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "$(uname -s)" != Linux ] || [ "$(id -u)" != 0 ]; then
  echo "this needs root on Linux" >&2
  exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/archive" "$work/root"
tar -xf dist/image/*_linux_"$(go env GOARCH)".docker.tar -C "$work/archive"
for layer in $(grep -o '[0-9a-f]\{64\}\.tar\.gz' "$work/archive/manifest.json"); do
  tar -xpf "$work/archive/$layer" -C "$work/root" --same-owner
done

# inside COMMAND...: in a mount namespace that ends with it. Only /tmp is writable,
# as an emptyDir would be: the playground keeps its log there.
inside() {
  # shellcheck disable=SC2016
  unshare --mount --pid --fork --kill-child sh -c '
    root=$0
    mount --bind "$root" "$root"
    mount -o remount,ro,bind,nosuid,nodev "$root"
    mount -t tmpfs -o mode=1777,noexec tmpfs "$root/tmp"
    exec setpriv --no-new-privs --inh-caps=-all chroot --userspec=65532:65532 "$root" "$@"' "$work/root" "$@"
}

for command in scheduler worker fermata; do
  echo "$command $(inside "/usr/bin/$command" version)"
done
said=$(inside /usr/bin/scheduler dev --plain --for 6s --grpc-addr 127.0.0.1:0 --http-addr 127.0.0.1:0)
if ! grep -E 'healthy +ok' <<<"$said"; then
  echo "no job ran in the image:" >&2
  echo "$said" >&2
  exit 1
fi
