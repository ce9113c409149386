#!/usr/bin/env bash
# Copies alerts, recording rules and dashboards into the chart: a chart can only read files of its own.
set -euo pipefail
cd "$(dirname "$0")/../deploy"
chart=helm/fermata/files
rm -rf "$chart/prometheus" "$chart/grafana"
mkdir -p "$chart/prometheus" "$chart/grafana"
for file in prometheus/*.yaml grafana/*.json; do
  case $file in
  *_test.yaml) continue ;;
  esac
  if [ -f "$file" ]; then cp "$file" "$chart/$file"; fi
done
