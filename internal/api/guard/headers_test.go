package guard

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"
)

// TestHeadersAreBounded checks which headers of a call are refused, and which of the others are kept.
func TestHeadersAreBounded(t *testing.T) {
	many := metadata.MD{}
	for i := range maxHeaderFields + 1 {
		many[fmt.Sprint("x-", i)] = []string{""}
	}
	usual := metadata.MD{
		"authorization": {"Bearer " + strings.Repeat("x", MaxHeaderBytes/2)}, "user-agent": {"grpc-go/1.85.0"},
		":authority": {"node:7070"}, "content-type": {"application/grpc"}, "grpc-accept-encoding": {"identity,deflate,gzip"},
		"traceparent": {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}, "tracestate": {"a=1", "b=2"},
		"baggage": {strings.Repeat("b", 3000)},
	}
	for name, c := range map[string]struct {
		headers metadata.MD
		want    bool
	}{
		"usual":                    {usual, false},
		"many":                     {many, true},
		"one, many times":          {metadata.MD{"x": make([]string, maxHeaderFields+1)}, true},
		"large":                    {metadata.MD{"x-bin": {strings.Repeat("x", maxOtherHeaderBytes)}}, true},
		"large, of an encoding":    {metadata.MD{"grpc-accept-encoding": {strings.Repeat("x", 200), strings.Repeat("x", 200)}}, true},
		"a large credential alone": {metadata.MD{"authorization": {strings.Repeat("x", MaxHeaderBytes)}}, false},
	} {
		if got := exceedsHeaders(c.headers); got != c.want {
			t.Errorf("%s: exceeds the bounds: %v, want %v", name, got, c.want)
		}
	}
	usual["tracestate"] = []string{strings.Repeat("x", 2000)}
	dropUnusedHeaders(usual)
	if kept := slices.Sorted(maps.Keys(usual)); !slices.Equal(kept, []string{"authorization", "traceparent"}) {
		t.Errorf("kept: %q", kept)
	}
}
