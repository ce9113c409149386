package conn

import (
	"strconv"
	"strings"
)

// serverInfo is the reply of INFO.
type serverInfo struct {
	addr   string
	fields map[string]string
	replay aofReplay
}

func parseInfo(addr, text string) serverInfo {
	i := serverInfo{addr: addr, fields: map[string]string{}}
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), ":")
		if ok && !strings.HasPrefix(name, "#") {
			i.fields[name] = value
		}
	}
	return i
}

func (i serverInfo) has(name string) bool {
	_, ok := i.fields[name]
	return ok
}

func (i serverInfo) text(name string) string { return i.fields[name] }

// number is 0 for a missing or invalid number.
func (i serverInfo) number(name string) int {
	n, err := strconv.Atoi(i.fields[name])
	if err != nil {
		return 0
	}
	return n
}

// atLeast compares the version. Valkey reports the version of Redis that it is
// compatible with.
func (i serverInfo) atLeast(major, minor int) bool {
	first, rest, _ := strings.Cut(i.text("redis_version"), ".")
	second, _, _ := strings.Cut(rest, ".")
	a, err := strconv.Atoi(first)
	b, err2 := strconv.Atoi(second)
	return err == nil && err2 == nil && (a > major || a == major && b >= minor)
}

// replicasOnline counts the replicas that are synchronised. "slave0" is
// "ip=..,port=..,state=online,offset=..,lag=..".
func (i serverInfo) replicasOnline() int {
	n := 0
	for name, value := range i.fields {
		_, err := strconv.Atoi(strings.TrimPrefix(name, "slave"))
		if err == nil && strings.Contains(value, "state=online") {
			n++
		}
	}
	return n
}
