#!/usr/bin/env bash
# Checks that no built program and no file over 1 MiB is committed.
set -euo pipefail
cd "$(dirname "$0")/.."
git rev-parse --git-dir >/dev/null 2>&1 || { echo "check-files: not a git checkout, nothing to check"; exit 0; }
status=0
while IFS=$' \t' read -r mode _ _ size file; do
	if [[ $size != - ]] && ((size > 1048576)); then
		echo "$file: larger than 1 MiB" >&2
		status=1
	fi
	if [[ $mode == 100755 && $(head -c 2 "$file" | tr -d '\0') != "#!" ]]; then
		echo "$file: executable, but not a script: is it a built program?" >&2
		status=1
	fi
done < <(git ls-tree -r --long HEAD)
exit "$status"
