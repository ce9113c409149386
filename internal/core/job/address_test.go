package job

import (
	"strings"
	"testing"
)

func TestIsAddress(t *testing.T) {
	for text, want := range map[string]bool{
		"127.0.0.1:7070": true, "node-0.nodes.jobs.svc.cluster.local:7070": true, "[::1]:1": true, "[fe80::1%eth0]:65535": true, "my_host:7": true,
		"": false, ":7070": false, "host": false, "host:": false, "host:0": false, "host:65536": false, "host:-1": false, "host:+1": false, "host:07070": false,
		"::1:7070": false, "[::1:7070": false, "::1]:7070": false, "[]:7070": false,
		"dns:///host:7070": false, "unix:/run/x:1": false, "unix:1": true, "host/path:1": false, "user@host:1": false,
		"host\n:1": false, "hößt:1": false, "a b:1": false, "host:1 ": false, "host:1\n": false,
		strings.Repeat("x", MaxAddress) + ":1": false,
	} {
		if IsAddress(text) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
}
