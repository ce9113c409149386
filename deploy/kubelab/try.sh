#!/usr/bin/env bash
# Tries the chart and the image on a real cluster (cluster.sh), under load, while a witness beside them (witness/) records what
# every attempt of every job was: install, upgrade, rollback, jobs in the values, pods killed, a machine lost and back, a drain,
# a failover of Redis, more and fewer nodes, uninstall; and then a release that brings its own Redis. Each line says what was done,
# what held, and how long it took. The cluster is ended whatever happens.
#
#   JOBS   jobs of the load (120), each due every 1 to 5 s
set -euo pipefail
. "$(dirname "$0")/settings.sh"
root=$(cd "$here/../.." && pwd)
space=trial
work=$(mktemp -d)
started=$(date +%s.%N)
doing=preparation # what a failure is a failure of
limit=15m         # of any command on the cluster: more than each of them waits, for a cluster that does not answer at all

cluster() { "$here/cluster.sh" "$@"; }
on_cluster() { cluster in timeout --foreground --kill-after=10s $limit "$@"; }
kubectl() { on_cluster kubectl "$@"; }
kube() { kubectl -n $space "$@"; }
helm() { on_cluster helm -n $space "$@"; }
witness() { kube exec witness -- /usr/bin/witness tell "$1"; }
fermata() {
  kube exec witness -- /usr/bin/fermata --address fermata.$space.svc:7070 --tls-server-name fermata.$space.svc \
    --tls-ca /etc/tls/ca.crt --tls-cert /etc/tls/tls.crt --tls-key /etc/tls/tls.key "$@"
}
release() { helm "$1" fermata "$root/deploy/helm/fermata" -f "$here/values.yaml" --set-string "image.repository=${image%:*},image.tag=${image##*:}" --wait --timeout 5m "${@:2}"; }

# report: what is to be seen after a failure. Not all of it is there after every one.
report() {
  local pod
  say "failed: $doing (code $1)"
  tail -v -n 30 "$work"/*.log
  if [ ! -s "$run/m1.pid" ]; then return; fi
  limit=1m
  kubectl get nodes
  kube get statefulsets,deployments,jobs,pods,persistentvolumeclaims -o wide
  kube get events --sort-by=.lastTimestamp >"$logs/events.log"
  tail -n 40 "$logs/events.log"
  for pod in $(kube get pods --no-headers | awk '{ split($2, of, "/") } of[1] != of[2] && $3 != "Completed" { print $1 }'); do
    kube describe pod "$pod" | tail -n 25
    kube logs "$pod" --all-containers --prefix --tail=20
  done
  say "what the parts of the cluster and all pods had to say, those that are gone too, is in $logs"
}

finish() {
  local code=$?
  set +e
  if [ $code != 0 ]; then report $code >&2; fi
  cluster down || code=1
  rm -rf "$work"
  if [ $code = 0 ]; then say "ok, all in $(since "$started")"; fi
  exit $code
}
[ ! -e "$run" ] || die "$run is there: another trial is under way, or was cut off (cluster.sh down)"
trap finish EXIT
trap 'exit 1' INT TERM HUP

# since START: seconds, with one decimal.
since() { awk -v a="$1" -v b="$(date +%s.%N)" 'BEGIN { printf "%.1f s", b - a }'; }

# step WHAT COMMAND...: what it prints last is what it has shown.
step() {
  local from
  from=$(date +%s.%N)
  doing=$1
  "${@:2}" >"$work/step.log"
  cp "$work/step.log" "$work/out.log"
  say "$1: $(tail -n 1 "$work/out.log") ($(since "$from"))"
}

# act WHAT WITHIN COSTS DO SETTLE: does something under load. Work has to go on WITHIN that of its end; COSTS are the words of
# witness/stage.go. SETTLE sees that the cluster is whole again.
act() {
  local from
  from=$(date +%s.%N)
  doing=$1
  witness "/begin?name=${1// /+}&within=$2&$3" >/dev/null
  "$4" >"$work/out.log" 2>&1
  witness /done >/dev/null
  "$5" >"$work/out.log" 2>&1
  witness /end >"$work/out.log"
  say "$1: $(cat "$work/out.log") ($(since "$from"))"
}

# eventually SECONDS COMMAND...
eventually() {
  local end=$((SECONDS + $1))
  shift
  until "$@" >"$work/eventually.log" 2>&1; do
    if ((SECONDS > end)); then
      echo "not in time: $*: $(tail -n 3 "$work/eventually.log")" >&2
      return 1
    fi
    sleep 1
  done
}

# ---- what it takes ----

certificates() {
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -keyout "$work/ca.key" -out "$work/ca.crt" \
    -subj '/CN=fermata authority'
  local role names
  for role in node worker client gateway gateway-client; do
    names=URI:spiffe://cluster.local/ns/$space/fermata/${role/#gateway-client/gateway}
    if [ $role = node ]; then names+=",DNS:fermata.$space.svc,DNS:*.fermata-nodes.$space.svc.cluster.local"; fi
    if [ $role = gateway ]; then names=DNS:fermata-gateway.$space.svc; fi
    openssl req -x509 -CA "$work/ca.crt" -CAkey "$work/ca.key" -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 \
      -keyout "$work/tls.key" -out "$work/tls.crt" -subj "/CN=fermata $role" -addext "subjectAltName=$names" \
      -addext basicConstraints=critical,CA:FALSE -addext extendedKeyUsage=serverAuth,clientAuth
    kube create secret generic $role-tls --from-file="$work/ca.crt" --from-file="$work/tls.crt" --from-file="$work/tls.key"
  done
  head -c 32 /dev/urandom | base64 >"$work/gossip.keys"
  kube create secret generic gossip --from-file="$work/gossip.keys"
  openssl rand -hex 16 | tr -d '\n' >"$work/password"
  kube create secret generic redis --from-file="$work/password"
  echo "trial $(head -c 32 /dev/urandom | base64)" >"$work/payload.keys"
  kube create secret generic payload-keys --from-file="$work/payload.keys"
  head -c 32 /dev/urandom >"$work/session.key"
  kube create secret generic console --from-file="$work/session.key"
  (cd "$root" && go build -o "$work/scheduler" ./cmd/scheduler)
  access
  "$work/scheduler" audit-key new trial >"$work/audit.key" 2>"$work/audit.pub"
  kube create secret generic audit-keys --from-file="$work/audit.key"
}

# access: workers, the witness and the hook by their certificates, and a person by a token.
access() {
  "$work/scheduler" token new person >"$work/person.token" 2>"$work/access.yaml"
  cat >>"$work/access.yaml" <<END
certificates: ["uri:spiffe://cluster.local/ns/$space/fermata/*"]
rules:
  - {subjects: ["uri:spiffe://cluster.local/ns/$space/fermata/worker"], role: worker, namespaces: ["*"]}
  - {subjects: ["uri:spiffe://cluster.local/ns/$space/fermata/worker"], role: admin, namespaces: ["*"]}
  - {subjects: ["uri:spiffe://cluster.local/ns/$space/fermata/client"], role: admin, namespaces: ["*"]}
  - {subjects: ["token:person"], role: admin, namespaces: ["*"]}
END
  kube create secret generic access --from-file="$work/access.yaml"
}

# own_images: Redis from Debian's package, with the shell that starts it; and the witness, with the command line of people.
own_images() {
  local file library
  mkdir -p "$work/redis/bin" "$work/redis/tmp" "$work/redis/data" "$work/witness/usr/bin"
  for file in redis-server redis-cli dash sleep cat sha256sum; do
    cp "$(command -v $file)" "$work/redis/bin/"
    for library in $(ldd "$(command -v $file)" | grep -o '/[^ ]*'); do
      mkdir -p "$work/redis$(dirname "$library")"
      cp -L "$library" "$work/redis$library"
    done
  done
  ln -s dash "$work/redis/bin/sh"
  cluster pack trial.local/redis:1 "$work/redis" redis-server
  (cd "$root" && CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$work/witness/usr/bin/" ./deploy/kubelab/witness ./cmd/fermata)
  cp "$work/audit.pub" "$work/witness/"
  cluster pack trial.local/witness:1 "$work/witness" /usr/bin/witness
}

the_image() {
  (cd "$root" && make image PLATFORMS="linux/$(go env GOARCH)") >"$work/out.log" 2>&1
  image=$(tail -n 1 "$work/out.log")
  image=${image%@*}
  cluster image "$root"/dist/image/*_linux_"$(go env GOARCH)".docker.tar
}

redis() { kube exec "$1" -- sh -c "REDISCLI_AUTH=\$PASSWORD redis-cli ${*:2}"; }
primary() { kube exec sentinel-0 -- redis-cli -p 26379 sentinel get-master-addr-by-name main | head -n 1; }
replicated() { redis "${1:-$(primary)}" info replication | grep '^connected_slaves:2'; }

start_redis() {
  kube apply -f "$here/redis.yaml"
  kube rollout status statefulset/redis --timeout 5m
  eventually 120 replicated redis-0
  kube scale statefulset/sentinel --replicas=3
  kube rollout status statefulset/sentinel --timeout 5m
}

# ---- what must hold after each disturbance ----

serving() { [ "$(fermata cluster nodes | grep -c ' serving ')" = "$1" ]; }

# whole [NODES]: pods are as wanted and ready, and the nodes have found each other.
whole() {
  local pool
  kube rollout status statefulset/fermata --timeout 5m
  for pool in worker-default worker-mail gateway; do kube rollout status "deployment/fermata-$pool" --timeout 5m; done
  eventually 120 serving "${1:-3}"
}

# no_restarts but those in $crashed, pod=count.
no_restarts() {
  local pod
  for pod in $(kube get pods -l 'app.kubernetes.io/component in (scheduler,worker,gateway)' \
    -o jsonpath='{range .items[*]}{.metadata.name}={.status.containerStatuses[*].restartCount} {end}'); do
    case " $crashed  $pod " in
    *"=0 " | *" $pod "*" $pod "*) ;;
    *)
      echo "a container was restarted: $pod"
      return 1
      ;;
    esac
  done
}

# ---- the disturbances ----

nothing() { sleep 15; } # what the others are to be compared with
upgrade() { release upgrade --set scheduler.config.max-payload=300000,workers.mail.config.slots=20; }
rollback() { helm rollback fermata 1 --wait --timeout 5m; }
rolled() {
  local now
  now=$(revision)
  if [ "$now" = "$before" ]; then
    echo "no node has been replaced: $now"
    return 1
  fi
  before=$now
  whole_and_calm
}
revision() { kube get statefulset fermata -o jsonpath='{.status.updateRevision}'; }

# pool_worker POOL: one of its pods, as $victim with the address that it has.
pool_worker() {
  read -r victim address < <(kube get pods -l fermata.io/pool="$1" --field-selector status.phase=Running \
    -o jsonpath='{.items[0].metadata.name} {.items[0].status.podIP}{"\n"}')
}
kill_node() { kube delete pod fermata-1 --force --grace-period=0 --timeout=2m; }
kill_worker() { kube delete pod "$victim" --force --grace-period=0 --timeout=2m; }
# crash POD: end its process without notice.
crash() {
  crashed+=" $1=1"
  cluster crash "$(kube get pod "$1" -o jsonpath='{.metadata.uid}')" "$2"
  eventually 120 crash_seen "$1"
}
crash_seen() { [ "$(kube get pod "$1" -o jsonpath='{.status.containerStatuses[0].restartCount}')" = 1 ]; }
crash_node() { crash fermata-2 scheduler; }
crash_worker() { crash "$victim" worker; }
whole_and_calm() {
  whole
  no_restarts
}

lose_machine() { cluster off 2; }
machine_lost() {
  kubectl wait --for=condition=Ready=Unknown node/m2 --timeout=3m
  eventually 180 serving 2
  local pool
  for pool in default mail; do kube rollout status "deployment/fermata-worker-$pool" --timeout 5m; done
}
return_machine() { cluster on 2; }
machine_back() {
  kubectl wait --for=condition=Ready node/m2 --timeout=3m
  whole
}

evict() {
  printf '{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"%s","namespace":"%s"}}' "$1" $space >"$work/eviction.json"
  kubectl create --raw "/api/v1/namespaces/$space/pods/$1/eviction" -f "$work/eviction.json"
}
evict_two() {
  evict fermata-0
  if evict fermata-2 2>"$work/second.log"; then
    echo "a second node could be evicted at once" >&2
    return 1
  fi
  grep -q 'disruption budget' "$work/second.log"
}
drain() { kubectl drain m3 --ignore-daemonsets --delete-emptydir-data --timeout=5m; }
drained() {
  whole
  if kube get pods -l app.kubernetes.io/instance=fermata -o wide --field-selector spec.nodeName=m3 --no-headers | grep .; then return 1; fi
  kubectl uncordon m3
}

fail_over() {
  local old
  old=$(primary)
  kube delete pod "$old" --force --grace-period=0 --timeout=2m
  eventually 120 writes "$old"
}
writes() { # OLD: another one is primary, and takes writes
  local new
  new=$(primary)
  [ -n "$new" ] && [ "$new" != "$1" ] && [ "$(redis "$new" set trial 1)" = OK ] && redis "$new" del trial
}
failed_over() {
  kube rollout status statefulset/redis --timeout 5m
  eventually 120 replicated
  whole
}

more() { release upgrade --set scheduler.replicas=5,workers.default.replicas=4; }
fewer() { release upgrade; }
five() { whole 5; }

# owns JOB...: the jobs of the release, as people list them.
owns() {
  local now
  now=$(fermata jobs list --label fermata.io/owner=helm/fermata | awk 'NR > 1 { print $1 }' | sort | paste -sd ' ')
  if [ "$now" != "$*" ]; then
    echo "the release has the jobs '$now', want '$*'" >&2
    return 1
  fi
}

# jobs_in_values: the hook applies them, does what has changed, takes away what is gone, and fails the upgrade when nodes refuse
# one. They are paused, so that the witness does not wonder.
jobs_in_values() {
  cat >"$work/jobs.yaml" <<END
jobs:
  nightly: {handler: report, queue: reports, paused: true, schedule: {interval: {every: 1h}}}
  sweep: {handler: sweep, queue: reports, paused: true, schedule: {interval: {every: 1h}}}
queues:
  reports: {max_concurrency: 3}
END
  release upgrade -f "$work/jobs.yaml"
  owns nightly sweep
  fermata queues get reports | grep 'at most 3'
  release upgrade -f "$work/jobs.yaml" --set jobs.nightly.schedule.interval.every=2h,jobs.sweep=null
  owns nightly
  fermata jobs get nightly | grep 'every 2h'
  if release upgrade -f "$work/jobs.yaml" --set jobs.nightly.schedule.interval.every=10ms >"$work/refused.log" 2>&1; then
    echo "a job that nodes refuse is no fault of the upgrade" >&2
    return 1
  fi
  kube logs job/fermata-apply | grep schedule.interval.every
  owns nightly
  release upgrade --set apply.allowEmpty=true
  owns
  echo "two applied; one changed and one pruned; one refused, with its field; all taken away"
}

# console_in_a_browser: a person signs in with a token, sees nodes and jobs, and pauses one. Nodes record who it was.
console_in_a_browser() {
  fermata jobs create console-trial --handler report --queue reports --every 24h
  (cd "$root/console/browsertest" && go test -c -o "$work/browser.test" .)
  on_cluster env CONSOLE_URL="https://fermata-gateway.$space.svc:7073" CONSOLE_TOKEN="$(cat "$work/person.token")" \
    "$work/browser.test" -test.v -test.run '^TestDeployedConsole$' >"$logs/browser.log" 2>&1 || {
    cat "$logs/browser.log" >&2
    return 1
  }
  fermata jobs get console-trial | grep paused
  fermata audit --identity token:person | grep PauseJob
  fermata jobs delete console-trial
  echo "signed in, saw nodes and jobs, paused one: the audit record names token:person"
}

# uninstall: Helm does not wait for pods, and keeps those of hooks.
uninstall() {
  helm uninstall fermata --wait --timeout 5m >/dev/null
  eventually 120 nothing_left fermata fermata
  echo "nothing is left but $(redis "$(primary)" dbsize) keys in Redis"
}
nothing_left() { # RELEASE NAME
  local all left
  all=$(kube get all,poddisruptionbudget,networkpolicy,configmap,secret,serviceaccount -l app.kubernetes.io/instance="$1" -o name) || return
  left=$(grep -vxE "pod/$2-test|job.batch/$2-apply|pod/$2-apply-[a-z0-9]+" <<<"$all" || true)
  echo "left behind: $left"
  [ -z "$left" ]
}

# try_out: what docs/kubernetes.md begins with, a release that brings its own Redis. There are no volumes here.
try_out() {
  helm install look "$root/deploy/helm/fermata" --wait --timeout 5m --set insecure=true,redis.existingSecret=redis \
    --set-string "image.repository=${image%:*},image.tag=${image##*:}" --set redis.dev.enabled=true,redis.dev.persistence.enabled=false \
    --set-string redis.dev.image.repository=trial.local/redis,redis.dev.image.tag=1 >/dev/null
  helm test look --timeout 5m --logs >"$work/out.log" 2>&1
  helm uninstall look --wait --timeout 5m >/dev/null
  eventually 120 nothing_left look look-fermata
  grep -o 'it ran, failed.*' "$work/out.log"
}

# ---- the trial ----

prepare() {
  cluster up >&2
  kubectl create namespace $space >/dev/null
  kubectl label namespace $space pod-security.kubernetes.io/enforce=restricted >/dev/null
  certificates >"$work/out.log" 2>&1
  own_images >&2
  start_redis >"$work/out.log"
  kube apply -f "$here/witness.yaml" >"$work/out.log"
  kube wait --for=condition=Ready pod/witness --timeout=3m >"$work/out.log"
}
install() {
  release install >/dev/null
  whole >/dev/null
  no_restarts
  echo "three nodes, two pools and two gateways are ready"
}
test_release() {
  helm test fermata --timeout 5m --logs >"$work/out.log" 2>&1
  grep -o 'it ran, failed.*' "$work/out.log"
}
audit() { fermata cluster check | tail -n 1; }
# signatures: of all audit records. They do not wait for replicas, so that a failover of Redis may lose some.
signatures() { fermata audit verify --public-key-file /audit.pub | tail -n 1; }

from=$(date +%s.%N)
prepare
the_image
say "cluster of three machines, Redis with Sentinel, image $image ($(since "$from"))"
crashed= # pods whose containers were restarted on purpose
step "install" install
step "helm test" test_release
step "load" witness "/register?jobs=${JOBS:-120}"
act "nothing" 2s "" nothing whole_and_calm
before=$(revision)
act "upgrade with changed values" 2s "" upgrade rolled
act "rollback" 2s "" rollback rolled
step "jobs in the values" jobs_in_values
step "web console in a browser" console_in_a_browser
act "pod of a node killed" 32s costs=none kill_node whole_and_calm
pool_worker mail
act "pod of a worker killed" 32s "costs=$address" kill_worker whole_and_calm
act "process of a node crashes" 32s costs=none crash_node whole_and_calm
pool_worker mail
act "process of a worker crashes" 32s "costs=$address" crash_worker whole_and_calm
addresses=$(kube get pods -l app.kubernetes.io/component=worker --field-selector spec.nodeName=m2 -o jsonpath='{.items[*].status.podIP}')
act "machine loses its power" 47s "costs=${addresses// /,}" lose_machine machine_lost
act "machine comes back" 2s "" return_machine machine_back
act "two nodes evicted at once, one of which is refused" 2s "" evict_two whole
act "machine drained" 2s "" drain drained
step "signatures of the audit records" signatures
act "primary of Redis killed" 2s "costs=none&calls=may-fail" fail_over failed_over
act "more nodes and workers" 2s "" more five
act "fewer again" 2s "" fewer whole
step "helm test" test_release
step "verdict" witness /judge
step "audit of what is stored" audit
step "uninstall" uninstall
step "a release for trying out" try_out
