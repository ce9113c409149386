#!/usr/bin/env bash
# One machine of the cluster: process 1 of namespaces that cluster.sh made for it. machine.sh N; the first one also is the
# control plane, and the wire between all of them.
set -euo pipefail
. "$(dirname "$0")/settings.sh"
n=$1 name=m$1 address=$machine_net.$1 at=$run/m$1
export PATH=$bin:$PATH

# start NAME COMMAND...: in the background, and again when it ends.
start() {
  local log=$logs/$1.log
  shift
  (
    while true; do
      "$@" >>"$log" 2>&1 || echo "ended with $?" >>"$log"
      sleep 1
    done
  ) &
}

# mounts: its own view of the kernel. What is mounted over would still be listed, and the kubelet would look for it.
mounts() {
  mount --make-rprivate / && mount --make-rshared /
  mount -t proc proc /proc
  umount --recursive --lazy /sys
  mount -t sysfs sysfs /sys
  mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
  local controller directory
  while read -r controller; do
    mkdir -p "/sys/fs/cgroup/$controller"
    mount -t cgroup -o "$controller" cgroup "/sys/fs/cgroup/$controller"
  done <"$run/controllers"
  mount -t tmpfs -o mode=755 tmpfs /run
  mount -t tmpfs -o mode=755 tmpfs /var/log
  mkdir -p /var/lib/cni
  mount -t tmpfs -o mode=755 tmpfs /var/lib/cni
  for directory in containerd kubelet ipam pod-logs volume-plugins; do mkdir -p "$at/$directory"; done
  rm -rf "$at"/ipam/*
  # The kubelet insists on these three, which are of the whole machine: let it see them.
  local value
  mkdir /run/sysctl
  for value in vm/overcommit_memory=1 kernel/panic=10 kernel/panic_on_oops=1; do
    echo "${value#*=}" >"/run/sysctl/$(basename "${value%=*}")"
    mount --bind "/run/sysctl/$(basename "${value%=*}")" "/proc/sys/${value%=*}"
  done
  hostname "$name"
  echo "127.0.0.1 localhost $name" >/run/hosts
  mount --bind /run/hosts /etc/hosts
  printf 'nameserver %s\nsearch svc.cluster.local cluster.local\noptions ndots:3\n' "$dns_ip" >/run/resolv.conf
  mount --bind /run/resolv.conf /etc/resolv.conf
}

# network: machine 1 is the bridge that the others are plugged into.
network() {
  local other
  ip link set lo up
  if [ "$n" = 1 ]; then
    # Without an address of its own it would take that of a cable, and another one when the power of that machine is cut: those that
    # still have power would go on writing to the old one, for half a minute.
    ip link add wire address 02:fe:00:00:00:01 type bridge
    ip addr add "$address/24" dev wire
    ip addr add "$dns_ip/24" dev wire
    ip link set wire up
    ip route add default dev wire src "$address" # addresses of services need one
  else
    until ip link show eth0 >/dev/null 2>&1; do sleep 0.1; done
    ip addr add "$address/24" dev eth0
    ip link set eth0 up
    ip route add default via $machine_net.1
  fi
  for other in $(seq "$machines"); do
    [ "$other" = "$n" ] || ip route add "$pod_net.$((other - 1)).0/24" via "$machine_net.$other"
  done
  sysctl -qw net.ipv4.ip_forward=1
}

control_plane() {
  local pki=$run/pki
  mkdir -p "$run/etcd"
  mount -t tmpfs tmpfs "$run/etcd" # a disk that flushes slowly is not what is tried here
  start etcd etcd --data-dir "$run/etcd/data" --log-level warn --listen-client-urls http://127.0.0.1:2379 \
    --advertise-client-urls http://127.0.0.1:2379 --listen-peer-urls http://127.0.0.1:2380
  start apiserver kube-apiserver --etcd-servers=http://127.0.0.1:2379 --bind-address=0.0.0.0 --secure-port=6443 \
    --advertise-address="$address" --tls-cert-file="$pki/apiserver.crt" --tls-private-key-file="$pki/apiserver.key" \
    --client-ca-file="$pki/ca.crt" --token-auth-file="$pki/tokens.csv" --authorization-mode=Node,RBAC --anonymous-auth=false \
    --allow-privileged --service-cluster-ip-range=$service_net \
    --service-account-issuer=https://kubernetes.default.svc.cluster.local \
    --service-account-key-file="$pki/accounts.pub" --service-account-signing-key-file="$pki/accounts.key" \
    --kubelet-client-certificate="$pki/apiserver-to-kubelet.crt" --kubelet-client-key="$pki/apiserver-to-kubelet.key" \
    --kubelet-certificate-authority="$pki/ca.crt" --kubelet-preferred-address-types=InternalIP \
    --default-not-ready-toleration-seconds=10 --default-unreachable-toleration-seconds=10
  local manager=(--kubeconfig="$run/manager.kubeconfig" --authentication-kubeconfig="$run/manager.kubeconfig"
    --authorization-kubeconfig="$run/manager.kubeconfig" --bind-address=127.0.0.1 --leader-elect=false)
  start manager kube-controller-manager "${manager[@]}" --use-service-account-credentials --root-ca-file="$pki/ca.crt" \
    --service-account-private-key-file="$pki/accounts.key" --node-monitor-period=2s --node-monitor-grace-period=12s
  start scheduler kube-scheduler "${manager[@]//manager.kubeconfig/scheduler.kubeconfig}"
  start dns dns -conf "$run/Corefile"
}

mounts
network
if [ "$n" = 1 ]; then control_plane; fi
start "containerd-$name" containerd --config "$at/containerd.toml"
start "kubelet-$name" kubelet --config="$at/kubelet.yaml" --kubeconfig="$run/$name.kubeconfig" --root-dir="$at/kubelet" \
  --hostname-override="$name" --node-ip="$address"
start "proxy-$name" kube-proxy --config="$at/proxy.yaml"
# What pods have said outlives them.
start "logs-$name" cp -rln "$at/pod-logs/." "$logs/pods/"
while true; do wait -n || sleep 1; done
