package observability

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/test/redistest"
)

// prometheus is a real server.
type prometheus struct {
	t    *testing.T
	base string
	mode mode
}

// mode is which forms a server stores of the histograms that have two.
type mode struct {
	name            string
	classic, native bool
	// absent are the selectors that find nothing in it.
	absent *regexp.Regexp
}

// modes are all that there are. From version 2.45 on, scrape_classic_histograms makes a server store both forms.
var modes = []mode{
	{"classic", true, false, regexp.MustCompile(`^` + twoForms + `(\{|$)`)},
	{"native", false, true, regexp.MustCompile(`^` + classicForm)},
	{"both", true, true, nil},
}

const (
	twoForms    = "fermata_(schedule_lag|attempt|run)_seconds"
	classicForm = twoForms + "_(bucket|sum|count)"
)

// target is a process that is scraped: the scrape job, the label instance, the address.
type target struct{ job, instance, address string }

// startPrometheus scrapes targets every second and evaluates the shipped rules as often,
// so that a short test sees their results.
func startPrometheus(t *testing.T, m mode, targets []target) *prometheus {
	t.Helper()
	dir := t.TempDir()
	text, err := os.ReadFile(root + "/deploy/prometheus/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	rules := filepath.Join(dir, "rules.yaml")
	quick := strings.ReplaceAll(string(text), "interval: 30s", "interval: 1s")
	config := "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\nrule_files: [" + rules + "]\nscrape_configs:\n" + scrapeConfigs("", targets, "")
	var flags []string
	if m.native {
		flags = append(flags, "--enable-feature=native-histograms")
		if m.classic {
			config += scrapeConfigs("classic-", asText(t, targets), "    metric_relabel_configs: [{source_labels: [__name__], regex: "+classicForm+", action: keep}]\n")
		}
	}
	for path, content := range map[string]string{rules: quick, filepath.Join(dir, "prometheus.yml"): config} {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	address := ownAddress()
	p := &prometheus{t: t, base: "http://" + address, mode: m}
	startProcess(t, "prometheus-"+m.name, "prometheus", append(flags, "--config.file", filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path", filepath.Join(dir, "data"),
		"--web.listen-address", address)...)
	redistest.Eventually(t, redistest.Patience, "prometheus is ready", func(ctx context.Context) error {
		_, err := p.getJSON(ctx, "/-/ready", nil)
		return err
	})
	return p
}

// scrapeConfigs has one for each scrape job, whose own name is that of the job behind a prefix.
func scrapeConfigs(prefix string, targets []target, more string) string {
	jobs := make(map[string]string)
	for _, t := range targets {
		jobs[t.job] += fmt.Sprintf("      - {targets: [%q], labels: {instance: %s, job: %s}}\n", t.address, t.instance, t.job)
	}
	var all strings.Builder
	for job, lines := range jobs {
		fmt.Fprintf(&all, "  - job_name: %s%s\n    honor_labels: true\n%s    static_configs:\n%s", prefix, job, more, lines)
	}
	return all.String()
}

// asText has the targets answer in text, whatever they are asked for: so a server that takes native histograms gets the
// classic form as well.
func asText(t *testing.T, targets []target) []target {
	t.Helper()
	out := slices.Clone(targets)
	for i := range out {
		to := &url.URL{Scheme: "http", Host: out[i].address}
		proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Header.Del("Accept")
		}, ErrorLog: log.New(io.Discard, "", 0)}) // a target may be killed
		t.Cleanup(proxy.Close)
		out[i].address = strings.TrimPrefix(proxy.URL, "http://")
	}
	return out
}

// ownAddress is one of the host's sixteen million for itself: no other process gets its port.
func ownAddress() string {
	return net.JoinHostPort(net.IPv4(127, byte(1+rand.IntN(250)), byte(rand.IntN(256)), byte(1+rand.IntN(250))).String(), "9090")
}

func (p *prometheus) getJSON(ctx context.Context, path string, values url.Values) (json.RawMessage, error) {
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

// queryNow asks for the present value of an expression.
func (p *prometheus) queryNow(expr string) ([]sample, error) {
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	data, err := p.getJSON(ctx, "/api/v1/query", url.Values{"query": {expr}})
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

// awaitResult waits until an expression finds something.
func (p *prometheus) awaitResult(expr string) {
	p.t.Helper()
	redistest.Eventually(p.t, redistest.Patience, expr, func(context.Context) error {
		found, err := p.queryNow(expr)
		if err == nil && len(found) == 0 {
			err = errors.New("nothing")
		}
		return err
	})
}
