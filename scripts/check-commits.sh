#!/usr/bin/env bash
# Checks the subjects of commits as CONTRIBUTING.md asks for them: scripts/check-commits.sh [RANGE].
# Older commits were written before the rule. A shallow clone is checked as far as it goes.
set -euo pipefail
cd "$(dirname "$0")/.."
since=b8139086f424441cd59b6f50e1c3c3b3c670efa8
git rev-parse --git-dir >/dev/null 2>&1 || { echo "check-commits: not a git checkout, nothing to check"; exit 0; }
range=${1:-HEAD}
if [[ $range == HEAD ]] && git cat-file -e "$since^{commit}" 2>/dev/null; then
	range=$since..HEAD
elif [[ $range == HEAD ]]; then
	range=-1
fi

status=0
complain() {
	echo "commit $1: $2: \"$3\"" >&2
	status=1
}
while IFS=$'\t' read -r id subject; do
	[[ -n $id ]] || continue
	((${#subject} <= 72)) || complain "$id" "the subject has ${#subject} characters, at most 72 are allowed" "$subject"
	[[ $subject != *. ]] || complain "$id" "the subject ends with a period" "$subject"
	text=$subject
	[[ ${subject%%: *} == *" "* ]] || text=${subject#*: } # without the package
	word=${text%% *}
	case $word in
	[a-z]*) complain "$id" "the subject begins with a lower-case letter (after \"package: \")" "$subject" ;;
	Embed | Exceed | Feed | Need | Seed | Shed | Speed | Bring | Ping | String) ;;
	*ed | *ing) complain "$id" "the subject is not imperative (\"Fix ...\", not \"Fixed ...\" or \"Fixing ...\")" "$subject" ;;
	esac
done < <(git log --no-merges --format=$'%h\t%s' "$range")
exit "$status"
