# shellcheck shell=bash disable=SC2154
# Certificates, tokens and configuration files of the cluster; sourced by cluster.sh.

certificates() {
  local at=$run/pki addresses="DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,IP:10.96.0.1,IP:127.0.0.1" n
  mkdir -p "$at"
  for n in $(seq "$machines"); do addresses+=",IP:$machine_net.$n"; done
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=authority \
    -keyout "$at/ca.key" -out "$at/ca.crt" 2>/dev/null
  signed() { # NAME SUBJECT USE
    openssl req -x509 -CA "$at/ca.crt" -CAkey "$at/ca.key" -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 \
      -subj "$2" -addext "subjectAltName=$addresses" -addext "extendedKeyUsage=$3" -addext basicConstraints=critical,CA:FALSE \
      -keyout "$at/$1.key" -out "$at/$1.crt" 2>/dev/null
  }
  signed apiserver /CN=kube-apiserver serverAuth
  signed kubelet /CN=kubelet serverAuth
  signed apiserver-to-kubelet /O=system:masters/CN=apiserver clientAuth
  openssl genrsa -out "$at/accounts.key" 2048 2>/dev/null
  openssl rsa -in "$at/accounts.key" -pubout -out "$at/accounts.pub" 2>/dev/null
}

# account NAME USER [GROUPS]: a token, and a kubeconfig with it.
account() {
  local token
  token=$(openssl rand -hex 16)
  printf '%s,%s,%s,"%s"\n' "$token" "$2" "$1" "${3:-}" >>"$run/pki/tokens.csv"
  cat >"$run/$1.kubeconfig" <<EOF
apiVersion: v1
kind: Config
current-context: trial
contexts: [{name: trial, context: {cluster: trial, user: $1}}]
clusters: [{name: trial, cluster: {server: "https://$machine_net.1:6443", certificate-authority: $run/pki/ca.crt}}]
users: [{name: $1, user: {token: $token}}]
EOF
}

accounts() {
  account admin admin system:masters
  account dns dns system:masters
  account manager system:kube-controller-manager
  account scheduler system:kube-scheduler
  account proxy system:kube-proxy
  for n in $(seq "$machines"); do account "m$n" "system:node:m$n" system:nodes; done
  chmod 600 "$run"/*.kubeconfig "$run/pki/tokens.csv"
}

dns_config() {
  cat >"$run/Corefile" <<EOF
.:53 {
  bind $dns_ip
  errors
  ready $dns_ip:8181
  kubernetes cluster.local in-addr.arpa {
    kubeconfig $run/dns.kubeconfig trial
    pods insecure
    ttl 5
  }
  cache 5
}
EOF
}

# machine_config N: what its container runtime, network, kubelet and proxy are told.
machine_config() {
  local n=$1 at=$run/m$1
  mkdir -p "$at/cni"
  cat >"$at/containerd.toml" <<EOF
version = 2
root = "$at/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper"]
[grpc]
  address = "$containerd_socket"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "trial.local/pause:1"
  disable_apparmor = true
  # Root without CAP_SYS_RESOURCE, as in many virtual machines, may not lower oom_score_adj.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$at/cni"
EOF
  cat >"$at/cni/10-trial.conflist" <<EOF
{"cniVersion": "1.0.0", "name": "trial", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "dataDir": "$at/ipam",
            "ranges": [[{"subnet": "$pod_net.$((n - 1)).0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
EOF
  cat >"$at/kubelet.yaml" <<EOF
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $machine_net.$n
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: $run/pki/ca.crt}
authorization: {mode: Webhook}
tlsCertFile: $run/pki/kubelet.crt
tlsPrivateKeyFile: $run/pki/kubelet.key
containerRuntimeEndpoint: unix://$containerd_socket
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
clusterDNS: [$dns_ip]
clusterDomain: cluster.local
resolvConf: $run/resolv.conf
podLogsDir: $at/pod-logs
volumePluginDir: $at/volume-plugins
nodeStatusUpdateFrequency: 4s
evictionHard: {memory.available: 200Mi, nodefs.available: 200Mi, imagefs.available: 200Mi} # not a tenth of whatever disk there is
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
EOF
  cat >"$at/proxy.yaml" <<EOF
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clusterCIDR: $pod_net.0.0/16
hostnameOverride: m$n
clientConnection: {kubeconfig: $run/proxy.kubeconfig}
# Tracking of connections is the machine's own, which is not to be touched.
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
EOF
}

configure() {
  : >"$run/resolv.conf"
  certificates
  accounts
  dns_config
  for n in $(seq "$machines"); do machine_config "$n"; done
}
