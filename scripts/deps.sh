#!/usr/bin/env bash
# Installs what the checks need beside Go, where it is missing: make, a C
# compiler (the race detector links with one), redis-server 7.0 or newer, which
# also serves as Sentinel, prometheus with promtool, chromium, and, from Debian's packages, what sdk/python is
# checked with (gRPC for Python, pytest, build, mypy), and gRPC for Ruby for the worker of examples/ruby. The TypeScript
# package needs Node.js 20 or newer: where the system's packages have an older one, npm brings it.
set -euo pipefail

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

apt() {
  as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get -qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 "$@" </dev/null
}

redis_version() { redis-server --version | sed -n 's/.* v=\([0-9]*\.[0-9]*\).*/\1/p'; }

node_is_current() { command -v node npm >/dev/null && [ "$(node -p 'process.versions.node.split(".")[0]')" -ge 20 ]; }

missing=()
need() { # need COMMAND PACKAGE...: the packages that bring the command
  command -v "$1" >/dev/null || missing+=("${@:2}")
}
if command -v apt-get >/dev/null; then
  need make make
  need "$(go env CC)" gcc libc6-dev
  need redis-server redis-server
  need prometheus prometheus
  need chromium chromium
  /usr/bin/python3 -c 'import grpc, google.protobuf, pytest, build, setuptools, wheel' 2>/dev/null ||
    missing+=(python3-grpcio python3-protobuf python3-pytest python3-build python3-setuptools python3-wheel)
  need mypy mypy
  need openssl openssl
  /usr/bin/ruby -e 'require "grpc"' 2>/dev/null || missing+=(ruby ruby-grpc)
  node_is_current || need npm npm
elif command -v brew >/dev/null; then
  need make make
  need redis-server redis
  need prometheus prometheus
  node_is_current || missing+=(node)
else
  need redis-server redis-server
  need prometheus prometheus
fi

if [ "${#missing[@]}" -gt 0 ]; then
  echo "installing ${missing[*]}"
  if command -v apt-get >/dev/null; then
    apt update
    apt install -y --no-install-recommends "${missing[@]}" >/dev/null
  elif command -v brew >/dev/null; then
    brew install "${missing[@]}"
  else
    echo "neither apt-get nor brew is here: install ${missing[*]} by hand" >&2
    exit 1
  fi
fi

if command -v npm >/dev/null && ! node_is_current; then
  echo "installing Node.js 22 by npm"
  as_root npm install --global --no-fund --no-audit --loglevel=error node@22 >/dev/null
  hash -r
fi

have=$(redis_version)
if [ -z "$have" ] || [ "${have%%.*}" -lt 7 ]; then
  echo "redis-server is of version ${have:-unknown}; 7.0 or newer is needed" >&2
  exit 1
fi
echo "redis-server $have, $(prometheus --version 2>&1 | sed -n 's/^\(prometheus\), version \([0-9.]*\).*/\1 \2/p')"
