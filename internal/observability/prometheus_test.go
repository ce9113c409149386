package observability

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/redistest"
)

// prometheus is a real server.
type prometheus struct {
	t    *testing.T
	base string
}

// target is a process that is scraped: the scrape job, the label instance, the address.
type target struct{ job, instance, address string }

// startPrometheus scrapes targets every second and evaluates the shipped rules as often,
// so that a short test sees their results.
func startPrometheus(t *testing.T, targets []target) *prometheus {
	t.Helper()
	dir := t.TempDir()
	rules, err := filepath.Abs(root + "/deploy/prometheus/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(rules)
	if err != nil {
		t.Fatal(err)
	}
	rules = filepath.Join(dir, "rules.yaml")
	quick := strings.ReplaceAll(string(text), "interval: 30s", "interval: 1s")
	config := "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\nrule_files: [" + rules + "]\nscrape_configs:\n"
	jobs := make(map[string]string)
	for _, t := range targets {
		jobs[t.job] += fmt.Sprintf("      - {targets: [%q], labels: {instance: %s}}\n", t.address, t.instance)
	}
	for job, lines := range jobs {
		config += fmt.Sprintf("  - job_name: %s\n    honor_labels: true\n    static_configs:\n%s", job, lines)
	}
	for path, content := range map[string]string{rules: quick, filepath.Join(dir, "prometheus.yml"): config} {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	address := ownAddress()
	p := &prometheus{t: t, base: "http://" + address}
	spawn(t, "prometheus", "prometheus", "--config.file", filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path", filepath.Join(dir, "data"),
		"--web.listen-address", address)
	redistest.Eventually(t, time.Minute, "prometheus is ready", func(ctx context.Context) error {
		_, err := p.get(ctx, "/-/ready", nil)
		return err
	})
	return p
}

// ownAddress is one of the host's sixteen million for itself: nobody else gets its port.
func ownAddress() string {
	return net.JoinHostPort(net.IPv4(127, byte(1+rand.IntN(250)), byte(rand.IntN(256)), byte(1+rand.IntN(250))).String(), "9090")
}

func (p *prometheus) get(ctx context.Context, path string, values url.Values) (json.RawMessage, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.base+path+"?"+values.Encode(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if path == "/-/ready" {
		if resp.StatusCode != http.StatusOK {
			return nil, errors.New(resp.Status)
		}
		return nil, nil
	}
	var answer struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return nil, fmt.Errorf("%s: %w", resp.Status, err)
	}
	if answer.Status != "success" {
		return nil, errors.New(answer.Error)
	}
	return answer.Data, nil
}

// sample is one series of an answer.
type sample struct {
	Metric map[string]string
	Value  [2]any
}

// query asks for the present value of an expression.
func (p *prometheus) query(expr string) ([]sample, error) {
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	data, err := p.get(ctx, "/api/v1/query", url.Values{"query": {expr}})
	if err != nil {
		return nil, err
	}
	var answer struct {
		ResultType string
		Result     json.RawMessage
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return nil, err
	}
	if answer.ResultType != "vector" {
		return []sample{{}}, nil // a scalar is always there
	}
	var samples []sample
	return samples, json.Unmarshal(answer.Result, &samples)
}

// has waits until an expression finds something.
func (p *prometheus) has(expr string) {
	p.t.Helper()
	redistest.Eventually(p.t, time.Minute, expr, func(context.Context) error {
		found, err := p.query(expr)
		if err == nil && len(found) == 0 {
			err = errors.New("nothing")
		}
		return err
	})
}
