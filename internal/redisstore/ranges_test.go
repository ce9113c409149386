package redisstore

import (
	"regexp"
	"strings"
	"testing"
)

// TestScriptsReadBoundedRanges: however much is due at one instant, no script reads
// more of a set than it was told to. Only the few fields of a shard's meta hash, and
// what was counted during a census, which the script bounds, are read whole.
func TestScriptsReadBoundedRanges(t *testing.T) {
	files, err := sources.ReadDir("lua")
	if err != nil {
		t.Fatal(err)
	}
	bounded := regexp.MustCompile(`'limit', '0'|, '0', '0', |, '0', int\(|int\(first\), int\(first \+ PART - 1\)`)
	ranges, whole := 0, 0
	for _, f := range files {
		for line := range strings.Lines(source(strings.TrimSuffix(f.Name(), ".lua"))) {
			if strings.Contains(line, "call('zrange'") {
				ranges++
				if !bounded.MatchString(line) {
					t.Errorf("%s: a range without an end: %s", f.Name(), strings.TrimSpace(line))
				}
			}
			for _, command := range []string{"hgetall", "hkeys", "hvals", "smembers", "lrange", "keys", "zrangebyscore"} {
				if strings.Contains(line, "call('"+command+"'") {
					whole++
					meta := strings.Contains(line, "call('hgetall', KEYS[1])") && f.Name() == "lease.lua"
					counts := strings.Contains(line, "call('hgetall', new)") && f.Name() == "limit_jobs.lua" // of MOST namespaces
					if !meta && !counts {
						t.Errorf("%s reads everything: %s", f.Name(), strings.TrimSpace(line))
					}
				}
			}
		}
	}
	if ranges < 8 || whole != 2 {
		t.Errorf("%d ranges and %d whole reads were looked at: the scripts have changed, and this test has not", ranges, whole)
	}
}
