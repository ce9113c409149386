package main

import (
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	client "github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/observe/telemetry"
	"github.com/fermata-io/fermata/proto/externalscaler"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// What of the JSON model Grafana 9 can read is tested in internal/test/observability, on the files
// that are shipped. Here are the promises to those who look at the dashboards.

// node of a metric that a worker or a gateway has, and what rules record, is not chosen by $node.
var (
	metric    = regexp.MustCompile(`\b(fermata|go|process)[a-z0-9_:]*[a-z0-9](\{[^}]*\})?`)
	elsewhere = regexp.MustCompile(`^fermata(:|_worker_|_gateway_)`)
	grouping  = regexp.MustCompile(`\b(by|on) *\([^)]*\)`)
)

// An expression looks at what is chosen, and every choice that is offered does something. Clusters
// in one Prometheus are never added up.
func TestVariablesAreUsed(t *testing.T) {
	for _, make := range dashboards {
		d := make()
		var names []string
		for _, v := range d.Templating.List {
			names = append(names, v.Name)
		}
		if !slices.Equal(names[:2], []string{"datasource", "job"}) || !slices.Contains(names, "node") {
			t.Errorf("%s has the variables %v, want datasource and job first, and node", d.UID, names)
		}
		used := map[string]bool{"datasource": true}
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				for _, name := range names {
					used[name] = used[name] || strings.Contains(target.Expr, `"$`+name+`"`)
				}
				for _, m := range metric.FindAllString(grouping.ReplaceAllString(target.Expr, ""), -1) {
					if !strings.Contains(m, inCluster) {
						t.Errorf("%s, %q: %s does not look at $job", d.UID, p.Title, m)
					}
					if !elsewhere.MatchString(m) && !strings.Contains(m, onNode) {
						t.Errorf("%s, %q: %s does not look at $node", d.UID, p.Title, m)
					}
				}
			}
		}
		for _, a := range d.Annotations.List {
			for _, m := range metric.FindAllString(grouping.ReplaceAllString(a.Expr, ""), -1) {
				if !strings.Contains(m, inCluster) {
					t.Errorf("%s marks what %s tells of all clusters", d.UID, m)
				}
			}
		}
		for _, name := range names {
			if !used[name] {
				t.Errorf("%s offers $%s, which no panel looks at", d.UID, name)
			}
		}
	}
}

// The dashboards of queues can be narrowed to one.
func TestQueuesCanBeChosen(t *testing.T) {
	for _, d := range []dashboard{overview(), backoff(), queues()} {
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				byQueue := strings.Contains(target.LegendFormat, "{{queue}}")
				if byQueue && !strings.Contains(target.Expr, inQueue) {
					t.Errorf("%s, %q: %s shows queues that are not chosen", d.UID, p.Title, target.Expr)
				}
			}
		}
	}
}

// A description tells what is seen, and then what to do about it.
func TestDescriptionsSayWhatToDo(t *testing.T) {
	sentence := regexp.MustCompile(`[.:;] `)
	for _, make := range dashboards {
		d := make()
		said := map[string]string{}
		for _, p := range d.Panels {
			if p.Type == "row" {
				continue
			}
			if len(strings.Fields(p.Description)) < 9 || !sentence.MatchString(p.Description) || !strings.HasSuffix(p.Description, ".") {
				t.Errorf("%s, %q: %q does not say what to do", d.UID, p.Title, p.Description)
			}
			if other := said[p.Description]; other != "" {
				t.Errorf("%s: %q says what %q says", d.UID, p.Title, other)
			}
			said[p.Description] = p.Title
		}
	}
}

// From each dashboard one gets to all others, and from some panels to their causes; what
// was chosen comes along.
func TestLinksLeadSomewhere(t *testing.T) {
	uids, to := make(map[string]bool), 0
	for _, make := range dashboards {
		uids[make().UID] = true
	}
	for _, make := range dashboards {
		d := make()
		if l := d.Links[0]; !l.IncludeVars || !l.KeepTime || !slices.Contains(d.Tags, l.Tags[0]) {
			t.Errorf("%s has the link %+v", d.UID, l)
		}
		for _, p := range d.Panels {
			for _, l := range p.Links {
				to++
				uid, query, _ := strings.Cut(strings.TrimPrefix(l.URL, "/d/"), "?")
				if !uids[uid] || uid == d.UID || query != "${__url_time_range}&${__all_variables}" || l.Title == "" {
					t.Errorf("%s, %q leads to %+v", d.UID, p.Title, l)
				}
			}
		}
	}
	if to < 8 {
		t.Errorf("only %d panels lead to their causes", to)
	}
}

// Take-overs and deploys are marked in all graphs.
func TestEventsAreMarked(t *testing.T) {
	for _, make := range dashboards {
		d := make()
		var names []string
		for _, a := range d.Annotations.List {
			if a.Enable && a.Datasource == prometheus && a.Expr != "" {
				names = append(names, a.Name)
			}
		}
		if !slices.Equal(names, []string{"Take-overs", "Deploys"}) {
			t.Errorf("%s marks %v", d.UID, names)
		}
	}
}

// The latency of calls is that of calls: streams last as long as somebody stays.
func TestLatencyLeavesStreamsOut(t *testing.T) {
	stream := regexp.MustCompile("^(" + streams + ")$")
	for _, service := range []grpc.ServiceDesc{
		fermatav1.JobService_ServiceDesc, fermatav1.ClusterService_ServiceDesc, fermatav1.BackupService_ServiceDesc,
		fermatav1.EventService_ServiceDesc, fermatav1.AccessService_ServiceDesc, fermatav1.WorkerService_ServiceDesc, externalscaler.ExternalScaler_ServiceDesc,
		grpc_health_v1.Health_ServiceDesc, grpc_reflection_v1.ServerReflection_ServiceDesc,
	} {
		for _, m := range service.Methods {
			if name := "/" + service.ServiceName + "/" + m.MethodName; stream.MatchString(name) {
				t.Errorf("%s is left out", name)
			}
		}
		for _, s := range service.Streams {
			if name := "/" + service.ServiceName + "/" + s.StreamName; !stream.MatchString(name) {
				t.Errorf("%s is shown", name)
			}
		}
	}
}

// A word has one colour.
func TestMeaningsAreDistinct(t *testing.T) {
	seen := make(map[string]string)
	for i, o := range byMeaning("^") {
		pattern := strings.Trim(o.Matcher.Options, "/")
		if _, err := regexp.Compile(pattern); err != nil {
			t.Error(err)
		}
		for word := range strings.SplitSeq(meanings[i].words, "|") {
			if seen[word] != "" {
				t.Errorf("%q is %s and %s", word, seen[word], meanings[i].color)
			}
			seen[word] = meanings[i].color
		}
	}
}

// Bars are in the order of their numbers: "10 or more" comes after "2 or more". A legend that is made from a label
// would have them sorted as text.
func TestFailingJobsAreSortedByNumber(t *testing.T) {
	if !slices.Equal(failureDepths, telemetry.FailureDepths) {
		t.Errorf("the bounds are %v, those of the metric %v", failureDepths, telemetry.FailureDepths)
	}
	for _, make := range dashboards {
		for _, p := range make().Panels {
			for i, target := range p.Targets {
				if !strings.Contains(target.Expr, "fermata_failing_jobs") {
					continue
				}
				depth := strconv.FormatInt(failureDepths[i], 10)
				if target.LegendFormat != depth+" or more" || !strings.Contains(target.Expr, `failures="`+depth+`"`) || len(p.Targets) != len(failureDepths) {
					t.Errorf("%q: bar %d of %d is %q, %s", p.Title, i, len(p.Targets), target.LegendFormat, target.Expr)
				}
			}
			if p.Type == "bargauge" && strings.Contains(p.Targets[0].LegendFormat, "or more") && len(p.Targets) == 1 {
				t.Errorf("%q has bars in the order of their texts", p.Title)
			}
		}
	}
}

// Each expression over a histogram with two forms asks for both, the classic one first, and never adds them.
func TestBothFormsOfHistogramsAreAskedFor(t *testing.T) {
	for _, metric := range nativeHistograms {
		classic, native := regexp.MustCompile(metric+`_(bucket|sum|count)\b`), regexp.MustCompile(metric+`\{`)
		asked := 0
		for _, make := range dashboards {
			for _, p := range make().Panels {
				text := ""
				for _, target := range p.Targets {
					text += target.Expr + "\n"
				}
				c, n := classic.MatchString(text), native.MatchString(text)
				if c != n || c && classic.FindStringIndex(text)[0] > native.FindStringIndex(text)[0] {
					t.Errorf("%q asks for the classic form: %v, for the native one: %v", p.Title, c, n)
				}
				if c {
					asked++
				}
			}
		}
		if asked == 0 {
			t.Errorf("no panel shows %s", metric)
		}
	}
}

// The list of histograms with two forms is that of the metrics that nodes have.
func TestNativeHistogramsAreKnown(t *testing.T) {
	registry := client.NewRegistry()
	telemetry.New(slog.New(slog.DiscardHandler), registry, "v1").Observe([]job.Notice{{Kind: job.AttemptStarted, Queue: "q", DueMS: 1, AtMS: 2}})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var native []string
	for _, f := range families {
		if h := f.GetMetric()[0].GetHistogram(); h != nil && h.Schema != nil {
			native = append(native, f.GetName())
		}
	}
	if want := slices.Sorted(slices.Values(nativeHistograms)); !slices.Equal(native, want) {
		t.Errorf("native histograms are %v, expressions know %v", native, want)
	}
}
