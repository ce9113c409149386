# shellcheck shell=bash disable=SC2034
# Places and addresses of the cluster that is tried on; sourced by the other scripts here.
#
#   KUBE_DIR  where binaries, logs and the running cluster's files lie: 1 GB, of which the binaries are worth keeping
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
KUBE_DIR=${KUBE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/fermata-kube}
export KUBE_DIR
bin=$KUBE_DIR/bin   # what build.sh made
run=$KUBE_DIR/run   # of the cluster that is up; gone with it
logs=$KUBE_DIR/logs # of the cluster that was up last

# Machines are m1, m2, m3. The first one has the control plane. Machine N has the address 10.250.0.N, and its pods
# 10.244.(N-1).0/24.
machines=3
machine_net=10.250.0
pod_net=10.244
service_net=10.96.0.0/16
dns_ip=$machine_net.53
group=fermata-kube # of all its control groups
containerd_socket=/run/containerd/containerd.sock

say() { printf '%s %s\n' "$(date +%H:%M:%S)" "$*"; }
die() {
  say "$*" >&2
  exit 1
}
