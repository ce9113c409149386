package redisd

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Command is the row of INFO commandstats for one command.
type Command struct {
	Calls int64
	Usec  float64
}

// Commands are all commands that were called so far, also those inside scripts.
func (s *Server) Commands(ctx context.Context) (map[string]Command, error) {
	fields, err := s.Info(ctx, "commandstats")
	if err != nil {
		return nil, err
	}
	out := map[string]Command{}
	for name, value := range fields {
		if name, ok := strings.CutPrefix(name, "cmdstat_"); ok {
			out[name] = parseCommand(value)
		}
	}
	return out, nil
}

// parseCommand reads "calls=1,usec=2,usec_per_call=2.00,...".
func parseCommand(text string) (c Command) {
	for field := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(field, "=")
		number, err := strconv.ParseFloat(value, 64)
		switch {
		case err != nil:
		case name == "calls":
			c.Calls = int64(number)
		case name == "usec":
			c.Usec = number
		}
	}
	return c
}

// CommandTable shows what was called between two readings, dearest first, also as a
// share of so many jobs. Scripts contain the commands that they call.
func CommandTable(before, after map[string]Command, jobs int) string {
	diff := map[string]Command{}
	for name, c := range after {
		if calls := c.Calls - before[name].Calls; calls > 0 {
			diff[name] = Command{Calls: calls, Usec: c.Usec - before[name].Usec}
		}
	}
	names := slices.SortedFunc(maps.Keys(diff), func(a, b string) int { return cmp.Compare(diff[b].Usec, diff[a].Usec) })
	var b strings.Builder
	fmt.Fprintf(&b, "%-22s %12s %12s %12s %12s %12s\n", "command", "calls", "us", "us/call", "calls/job", "us/job")
	for _, name := range names {
		c := diff[name]
		fmt.Fprintf(&b, "%-22s %12d %12.0f %12.2f %12.4f %12.3f\n", name, c.Calls, c.Usec,
			c.Usec/float64(c.Calls), float64(c.Calls)/float64(jobs), c.Usec/float64(jobs))
	}
	return b.String()
}
