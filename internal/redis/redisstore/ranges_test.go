package redisstore

import (
	"regexp"
	"strings"
	"testing"
)

// TestScriptsReadBoundedRanges: however much is due at one instant, no script reads
// more of a set than it was told to. Only the few fields of a shard's meta hash, and
// what was counted during a census and the settings of queues with their owners, which their
// scripts bound, are read whole.
func TestScriptsReadBoundedRanges(t *testing.T) {
	bounded := regexp.MustCompile(`'limit', '0'|, '0', '0', |, '0', int\(|int\(first\), int\(first \+ PART - 1\)|, at, at\)`)
	ranges, whole := 0, 0
	for _, path := range append(globIn(t, "lua/*.lua"), globIn(t, "lua/parts/*.lua")...) {
		_, name, _ := strings.Cut(strings.TrimSuffix(path, ".lua"), "lua/")
		for line := range strings.Lines(readScript(t, name)) {
			if strings.Contains(line, "call('zrange'") {
				ranges++
				if !bounded.MatchString(line) {
					t.Errorf("%s: a range without an end: %s", name, strings.TrimSpace(line))
				}
			}
			for _, command := range []string{"hgetall", "hkeys", "hvals", "smembers", "lrange", "keys", "zrangebyscore"} {
				if strings.Contains(line, "call('"+command+"'") {
					whole++
					meta := strings.Contains(line, "call('hgetall', KEYS[1])") && name == "lease"
					counts := strings.Contains(line, "call('hgetall', new)") && name == "limit_jobs"     // of MOST namespaces
					settings := strings.Contains(line, "call('hgetall', key)") && name == "limit_queues" // of 10,000 queues, once a minute
					owners := strings.Contains(line, "call('hgetall', owners)") && name == "limit_queues"
					if !meta && !counts && !settings && !owners {
						t.Errorf("%s reads everything: %s", name, strings.TrimSpace(line))
					}
				}
			}
		}
	}
	if ranges < 8 || whole != 4 {
		t.Errorf("%d ranges and %d whole reads were looked at: the scripts have changed, and this test has not", ranges, whole)
	}
}
