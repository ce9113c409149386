#!/usr/bin/env bash
# Builds Kubernetes, Helm, a DNS server and the pause program from their Go modules, as the go.mod files in parts/ pin them.
# The first time takes half an hour of processor time and 6 GB of Go's caches, later ones seconds.
set -euo pipefail
. "$(dirname "$0")/settings.sh"
export GOWORK=off CGO_ENABLED=0 GOFLAGS=-buildvcs=false
mkdir -p "$bin"

# build PART PACKAGE BINARY [-X SETTING...]
build() {
  local part=$1 package=$2 binary=$3 flags="-s -w"
  shift 3
  for setting in "$@"; do flags+=" -X $setting"; done
  [ -x "$bin/$binary" ] || say "building $part"
  (cd "$here/parts/$part" && go build -trimpath -ldflags "$flags" -o "$bin/$binary" "$package")
}

version() { (cd "$here/parts/$1" && go list -m -f '{{.Version}}' "$2"); }

# Charts ask for the version of Kubernetes, which binaries only know if the linker tells them.
kube=$(version kubernetes k8s.io/kubernetes)
minor=${kube#v1.}
minor=${minor%%.*}
settings=()
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
  settings+=("$package.gitVersion=$kube" "$package.gitMajor=1" "$package.gitMinor=$minor"
    "$package.gitTreeState=clean" "$package.buildDate=1970-01-01T00:00:00Z")
done
build kubernetes . kubernetes "${settings[@]}"
for component in kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet kubectl; do
  ln -sf kubernetes "$bin/$component"
done

helm=helm.sh/helm/v3
settings=("$helm/internal/version.version=$(version helm $helm)")
for package in $helm/pkg/chartutil $helm/pkg/lint/rules; do
  settings+=("$package.k8sVersionMajor=1" "$package.k8sVersionMinor=$minor")
done
build helm $helm/cmd/helm helm "${settings[@]}"
build dns . dns
build pause . pause
