#!/usr/bin/env bash
# A real Kubernetes cluster of three machines on this one: etcd, API server, controller manager, scheduler; on each machine
# kubelet, containerd, runc, network and proxy; and DNS. Each machine is a tree of processes in namespaces of its own, inside
# those of the first one: nothing listens on this machine's network, none of its settings change, and the end of one process
# ends all. What is left on this machine afterwards: Debian's packages, and the binaries in KUBE_DIR.
#
#   cluster.sh up                          build what is missing, start, wait until it is ready
#   cluster.sh in COMMAND...               run a command on the first machine: kubectl, helm, redis-cli
#   cluster.sh image ARCHIVE               load a docker archive on every machine
#   cluster.sh pack NAME:TAG DIR COMMAND   make an image of a directory, and load it
#   cluster.sh crash UID COMMAND           kill -9 a process of the pod with this id
#   cluster.sh off N, cluster.sh on N      cut the power of machine N (not 1), and give it back
#   cluster.sh down                        end it, and look that nothing is left
#
# Needs Linux with control groups of version 1, root, Debian's apt-get, and Go.
set -euo pipefail
. "$(dirname "$0")/settings.sh"
. "$here/config.sh"

packages() {
  local missing=() package
  for package in etcd-server containerd runc containernetworking-plugins nftables iptables conntrack iproute2 openssl redis-server chromium; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  if [ ${#missing[@]} = 0 ]; then return; fi
  say "installing ${missing[*]}"
  # None of them is to start a service here.
  local policy=/usr/sbin/policy-rc.d ours=
  if [ ! -e $policy ]; then
    ours=yes
    printf '#!/bin/sh\nexit 101\n' >$policy
    chmod +x $policy
  fi
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null
  if [ -n "$ours" ]; then rm $policy; fi
}

# control_groups: one group in each hierarchy, below the one that this process is in.
control_groups() {
  local controller at
  for controller in cpu cpuacct cpuset memory devices freezer blkio pids; do
    at=$(awk -F: -v c="$controller" '{ n = split($2, all, ","); for (i = 1; i <= n; i++) if (all[i] == c) print $3 }' /proc/self/cgroup)
    if [ -z "$at" ] || [ ! -d "/sys/fs/cgroup/$controller" ]; then
      die "there is no control group of version 1 for $controller: this cluster needs a machine that boots with them"
    fi
    at=/sys/fs/cgroup/$controller${at%/}/$group
    mkdir -p "$at"
    echo "$controller" >>"$run/controllers"
    echo "$at" >>"$run/groups"
    if [ "$controller" = cpuset ]; then copy_cpuset "${at%/*}" "$at"; fi
  done
}

copy_cpuset() { # FROM TO: a new group of processors is empty, and takes nobody
  cat "$1/cpuset.cpus" >"$2/cpuset.cpus"
  cat "$1/cpuset.mems" >"$2/cpuset.mems"
}

# boot N: process 1 of a new machine; its id from the outside ends up in m$N.pid.
boot() {
  setsid unshare --mount --net --pid --uts --ipc --cgroup --fork --kill-child "$here/machine.sh" "$1" \
    >>"$logs/m$1.log" 2>&1 </dev/null &
  local above=$! below
  for _ in $(seq 100); do # until the child has a namespace of its own
    below=$(pgrep -P $above | head -n 1 || true)
    if [ -n "$below" ] && [ "$(readlink "/proc/$below/ns/pid")" != "$(readlink /proc/self/ns/pid)" ]; then
      echo "$below" >"$run/m$1.pid"
      return
    fi
    sleep 0.1
  done
  die "machine $1 does not start: $(tail -n 5 "$logs/m$1.log")"
}

# first COMMAND...: runs it on machine 1.
first() {
  [ -s "$run/m1.pid" ] || die "no cluster is up"
  PATH=$bin:$PATH KUBECONFIG=$run/admin.kubeconfig nsenter -t "$(cat "$run/m1.pid")" -m -n -p -u -i --wd="$PWD" -- "$@"
}

# on_machine N COMMAND...: sees the files of machine N. Machines after the first are known by ids of the first.
on_machine() {
  local n=$1
  shift
  if [ "$n" = 1 ]; then first "$@"; else first nsenter -t "$(cat "$run/m$n.pid")" -m -- "$@"; fi
}

# power_on N, inside of machine 1: a machine, and its cable.
power_on() {
  local n=$1 controller at
  while read -r controller; do
    at=/sys/fs/cgroup/$controller/m$n
    mkdir -p "$at"
    if [ "$controller" = cpuset ]; then copy_cpuset "${at%/*}" "$at"; fi
    echo $$ >"$at/cgroup.procs"
  done <"$run/controllers"
  ip link delete "m$n" 2>/dev/null || true
  boot "$n"
  ip link add "m$n" type veth peer name eth0 netns "$(cat "$run/m$n.pid")"
  ip link set "m$n" master wire up
}

# wait_for SECONDS WHAT COMMAND...: commands that end by themselves.
wait_for() {
  local seconds=$1 what=$2 end=$((SECONDS + $1)) said
  shift 2
  while ((SECONDS <= end)); do
    if said=$("$@" 2>&1); then return; fi
    [ -d "/proc/$(cat "$run/m1.pid")" ] || die "machine 1 has ended: $(tail -n 5 "$logs/m1.log")"
    sleep 1
  done
  die "$what: not within $seconds s: $said (logs are in $logs)"
}

up() {
  [ "$(id -u)" = 0 ] || die "this needs root"
  [ ! -e "$run" ] || die "$run is there: a cluster is up, or was not ended (cluster.sh down)"
  packages
  "$here/build.sh"
  rm -rf "$logs"
  mkdir -p "$run" "$logs/pods"
  configure
  control_groups
  (
    while read -r at; do echo "$BASHPID" >"$at/cgroup.procs"; done <"$run/groups"
    boot 1
  )
  wait_for 180 "API server" first timeout 10 kubectl get --raw /readyz
  local n
  for n in $(seq 2 $machines); do first "$here/cluster.sh" power-on "$n"; done
  for n in $(seq "$machines"); do wait_for 60 "container runtime of m$n" on_machine "$n" timeout 10 ctr -a $containerd_socket version; done
  mkdir -p "$run/pause"
  cp "$bin/pause" "$run/pause/"
  pack trial.local/pause:1 "$run/pause" /pause
  for n in $(seq "$machines"); do wait_for 180 "machine m$n" first timeout 10 kubectl wait --for=condition=Ready "node/m$n" --timeout=1s; done
  wait_for 60 "DNS" first curl -sf -m 10 "http://$dns_ip:8181/ready"
  wait_for 60 "service accounts" first timeout 10 kubectl -n default get serviceaccount default
}

# load ARCHIVE: into the container runtime of every machine that is on.
load() {
  local n
  for n in $(seq "$machines"); do
    if [ -e "$run/m$n.pid" ]; then on_machine "$n" timeout 300 ctr -a $containerd_socket -n k8s.io images import "$1" >/dev/null; fi
  done
}

# pack NAME:TAG DIR COMMAND...: the directory is the only layer.
pack() {
  local name=$1 directory=$2 work sum command
  shift 2
  work=$(mktemp -d "$run/image.XXXXXX")
  tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$directory" -cf "$work/layer.tar" .
  sum=$(sha256sum "$work/layer.tar" | cut -d' ' -f1)
  command=$(printf '"%s",' "$@")
  cat >"$work/config.json" <<EOF
{"architecture": "$(go env GOARCH)", "os": "linux", "created": "1970-01-01T00:00:00Z",
 "config": {"Entrypoint": [${command%,}], "User": "65532", "Env": ["PATH=/usr/bin:/bin"]},
 "rootfs": {"type": "layers", "diff_ids": ["sha256:$sum"]}}
EOF
  echo "[{\"Config\": \"config.json\", \"RepoTags\": [\"$name\"], \"Layers\": [\"layer.tar\"]}]" >"$work/manifest.json"
  tar -C "$work" -cf "$work/image.tar" manifest.json config.json layer.tar
  load "$work/image.tar"
  rm -rf "$work"
}

# off N: the cable first, or the kernel would say farewell for what ends.
off() {
  first sh -c "ip link delete m$1 && kill -9 $(cat "$run/m$1.pid")"
  rm "$run/m$1.pid"
}

# find_and_kill UID COMMAND, inside of machine 1, which sees the processes of all.
find_and_kill() {
  local pid killed=
  for pid in $(pgrep -x "$2"); do
    if grep -qF "pod$1" "/proc/$pid/cgroup"; then
      kill -9 "$pid"
      killed=yes
    fi
  done
  [ -n "$killed" ] || die "no process $2 of pod $1 is there"
}

down() {
  local pid at left=0
  pid=$(cat "$run/m1.pid" 2>/dev/null || true)
  [ -d "/proc/$pid" ] || pid=
  # Only what runs machine.sh is this cluster's; its end ends everything in its namespace.
  if [ -n "$pid" ] && tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qF "$here/machine.sh 1"; then
    kill -9 "$pid"
    for _ in $(seq 300); do
      [ -e "/proc/$pid" ] || break
      sleep 0.1
    done
  fi
  while read -r at; do
    for _ in $(seq 100); do
      [ -d "$at" ] || break
      find "$at" -depth -type d -exec rmdir {} + 2>/dev/null || sleep 0.1
    done
    if [ -d "$at" ]; then
      say "left behind: $at" >&2
      left=1
    fi
  done < <(cat "$run/groups" 2>/dev/null)
  if grep -F " $KUBE_DIR/" /proc/self/mountinfo >&2; then
    say "left behind: the mounts above" >&2
    left=1
  fi
  if grep -lzsE "$here/machine[.]sh" /proc/[0-9]*/cmdline >&2; then
    say "left behind: the processes above" >&2
    left=1
  fi
  rm -rf "$run"
  rmdir /var/lib/cni 2>/dev/null || true # it was made to be mounted over
  return $left
}

command=${1:-}
shift || true
case $command in
up) up ;;
in) first "$@" ;;
image) load "$@" ;;
pack) pack "$@" ;;
off) off "$@" ;;
on) first "$here/cluster.sh" power-on "$@" ;;
crash) first "$here/cluster.sh" find-and-kill "$@" ;;
power-on) power_on "$@" ;;
find-and-kill) find_and_kill "$@" ;;
down) down ;;
*)
  sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" >&2
  exit 2
  ;;
esac
