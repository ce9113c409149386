package fermata

import (
	"context"
	"maps"
	"strconv"
	"strings"
)

// Metrics are the series that a node exposes, by name with labels.
type Metrics map[string]float64

// Metrics reads /metrics of the node.
func (n *Node) Metrics(ctx context.Context) (Metrics, error) {
	text, err := n.MetricsText(ctx)
	if err != nil {
		return nil, err
	}
	return parseMetrics(string(text)), nil
}

// MetricsText is /metrics as it is.
func (n *Node) MetricsText(ctx context.Context) ([]byte, error) {
	return get(ctx, "http://"+n.HTTP+"/metrics")
}

func parseMetrics(text string) Metrics {
	m := Metrics{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		// Labels may hold spaces, values do not.
		end := strings.LastIndexByte(line, '}') + 1
		name, rest := line[:end], line[end:]
		if end == 0 {
			name, rest, _ = strings.Cut(line, " ")
		}
		if fields := strings.Fields(rest); len(fields) > 0 {
			if v, err := strconv.ParseFloat(fields[0], 64); err == nil {
				m[name] += v
			}
		}
	}
	return m
}

// Metrics adds up the series of all nodes.
func (c *Cluster) Metrics(ctx context.Context) (Metrics, error) {
	all := Metrics{}
	for _, n := range c.Nodes {
		m, err := n.Metrics(ctx)
		if err != nil {
			return nil, err
		}
		for name, v := range m {
			all[name] += v
		}
	}
	return all, nil
}

// Sum adds up the series of a name that have all these labels, as `outcome="dead"`.
func (m Metrics) Sum(name string, labels ...string) float64 {
	total := 0.0
	for series, v := range maps.All(m) {
		family, rest, _ := strings.Cut(series, "{")
		if family != name {
			continue
		}
		match := true
		for _, l := range labels {
			match = match && strings.Contains(rest, l)
		}
		if match {
			total += v
		}
	}
	return total
}
