package redistest

import (
	"fmt"
	"strings"
	"testing"
)

func serverAddrs(servers []*Server) []string {
	list := make([]string, len(servers))
	for i, s := range servers {
		list[i] = s.Addr()
	}
	return list
}

func findServer(t testing.TB, servers []*Server, addr string) *Server {
	t.Helper()
	for _, s := range servers {
		if s.Addr() == addr {
			return s
		}
	}
	t.Fatalf("redistest: no server of this test is at %s", addr)
	return nil
}

// hostSpacePort is the form in which redis.conf has addresses.
func hostSpacePort(addr string) string { return strings.Replace(addr, ":", " ", 1) }

// replyFields reads a reply of names and values, which the newer protocol sends as a
// map and the older as a flat list.
func replyFields(reply any) map[string]string {
	m := map[string]string{}
	switch r := reply.(type) {
	case map[any]any:
		for k, v := range r {
			m[fmt.Sprint(k)] = fmt.Sprint(v)
		}
	case []any:
		for i := 0; i+1 < len(r); i += 2 {
			m[fmt.Sprint(r[i])] = fmt.Sprint(r[i+1])
		}
	}
	return m
}
