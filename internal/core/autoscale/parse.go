package autoscale

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Defaults, and bounds of what may be asked for.
const (
	DefaultNamespace     = "default"
	DefaultHorizon       = time.Minute
	DefaultActivationLag = time.Minute

	// Autoscalers count in thousandths.
	MinTarget = 0.001
	MaxTarget = 1e9
	MaxSpan   = 24 * time.Hour
	MaxQueues = 50
)

// Fault is what is wrong with one key of a trigger.
type Fault struct{ Key, Text string }

// foreign are keys of a KEDA trigger that are KEDA's own; secret ones it reads from a
// TriggerAuthentication only.
var (
	foreign = []string{"scalerAddress", "enableTLS", "unsafeSsl", "tlsCertFile"}
	secret  = []string{"caCert", "tlsClientCert", "tlsClientKey"}
)

// fromEnv ends keys whose value KEDA has found in a variable of the workload. It leaves
// them as they are.
const fromEnv = "FromEnv"

// Parse reads a trigger from texts by their keys, of which each may have FromEnv behind it:
//
//	queue               required; several, which one pool serves, with commas between them, at most 50
//	namespace           default "default"; of Fermata, not of Kubernetes
//	targetBacklog       number from 0.001 to 1e9
//	targetLag           duration from 1ms to 24h; one of the two is required
//	countRunning        true or false; default true; with targetBacklog only
//	activationBacklog   whole number from 0; default 0
//	activationLag       duration from 0, at most 24h; with activationBacklog only, default 1m
//	horizon             duration from 0, at most 24h; default 1m, and 0 with activationBacklog
//
// Names are not checked beyond being there. It returns what is wrong, by key.
func Parse(texts map[string]string) (Trigger, []Fault) {
	r := newReader(texts)
	t := Trigger{
		Namespace: r.text("namespace", DefaultNamespace), Queues: r.names("queue"),
		Backlog: r.number("targetBacklog"), Lag: r.span("targetLag", 0), CountRunning: r.yes("countRunning", true),
		ActivationBacklog: r.count("activationBacklog"),
	}
	t.ActivationLag, t.Horizon = r.span("activationLag", 0), r.span("horizon", DefaultHorizon)
	if t.ActivationBacklog > 0 {
		t.ActivationLag, t.Horizon = r.span("activationLag", DefaultActivationLag), 0
	}
	r.unless(r.has("targetBacklog") || r.has("targetLag"), "targetBacklog", "is missing: give targetBacklog, targetLag or both")
	r.unless(!r.has("targetLag") || t.Lag >= time.Millisecond, "targetLag", "must be 1ms or more")
	r.unless(!r.has("countRunning") || r.has("targetBacklog"), "countRunning", "has no effect without targetBacklog")
	r.unless(!r.has("activationLag") || t.ActivationBacklog > 0, "activationLag", "has no effect without activationBacklog")
	r.unless(!r.has("horizon") || t.ActivationBacklog == 0, "horizon", "has no effect with activationBacklog: whoever waits for several jobs does not look ahead for one")
	for _, key := range slices.Sorted(maps.Keys(r.texts)) {
		r.unless(!slices.Contains(secret, key), key, "is not read by KEDA here: name a Secret with it in a TriggerAuthentication")
		r.unless(slices.Contains(r.known, key), key, "is not known; known are "+strings.Join(r.known[len(foreign):], ", "))
	}
	return t, r.faults
}

// reader takes values out of texts, and notes what it was asked for and what is wrong.
type reader struct {
	texts  map[string]string
	known  []string
	faults []Fault
}

func newReader(texts map[string]string) *reader {
	r := &reader{texts: make(map[string]string, len(texts)), known: slices.Clone(foreign)}
	for _, written := range slices.Sorted(maps.Keys(texts)) { // the plain key first
		key := strings.TrimSuffix(written, fromEnv)
		r.unless(r.texts[key] == "", key, "is given twice, once as "+key+fromEnv)
		r.texts[key] = strings.TrimSpace(texts[written])
	}
	return r
}

func (r *reader) fault(key, format string, args ...any) {
	for _, f := range r.faults {
		if f.Key == key {
			return // the first says enough
		}
	}
	r.faults = append(r.faults, Fault{key, fmt.Sprintf(format, args...)})
}

func (r *reader) unless(good bool, key, text string) {
	if !good {
		r.fault(key, "%s", text)
	}
}

func (r *reader) has(key string) bool { return r.texts[key] != "" }

// text counts an empty value as none: templates leave such behind.
func (r *reader) text(key, other string) string {
	if !slices.Contains(r.known, key) {
		r.known = append(r.known, key)
	}
	return cmp.Or(r.texts[key], other)
}

// clip keeps what comes back to a caller short.
func clip(s string) string {
	if len(s) > 40 {
		return s[:40] + "..."
	}
	return s
}

func (r *reader) names(key string) (all []string) {
	for name := range strings.SplitSeq(r.text(key, ""), ",") {
		name = strings.TrimSpace(name)
		switch {
		case name == "":
			r.fault(key, "is missing, or has an empty name: the queues whose workers are scaled, with commas between them")
		case slices.Contains(all, name):
			r.fault(key, "has %q twice", clip(name))
		}
		if all = append(all, name); len(all) > MaxQueues {
			r.fault(key, "has more than %d names", MaxQueues)
			return nil
		}
	}
	return all
}

func (r *reader) number(key string) float64 {
	v := r.text(key, "")
	if v == "" {
		return 0
	}
	n, err := strconv.ParseFloat(v, 64)
	if err != nil || !(n >= MinTarget && n <= MaxTarget) {
		r.fault(key, "is %q, want a number from %v to %.0f", clip(v), MinTarget, float64(MaxTarget))
	}
	return n
}

func (r *reader) count(key string) int64 {
	v := r.text(key, "0")
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < 0 || n > MaxTarget {
		r.fault(key, "is %q, want a whole number from 0 to %.0f", clip(v), float64(MaxTarget))
	}
	return n
}

func (r *reader) span(key string, other time.Duration) time.Duration {
	v := r.text(key, other.String())
	d, err := time.ParseDuration(v)
	if err != nil || d < 0 || d > MaxSpan {
		r.fault(key, "is %q, want a duration with a unit, such as 30s or 5m, at most %v", clip(v), MaxSpan)
	}
	return d
}

func (r *reader) yes(key string, other bool) bool {
	v := r.text(key, strconv.FormatBool(other))
	b, err := strconv.ParseBool(v)
	if err != nil {
		r.fault(key, "is %q, want true or false", clip(v))
	}
	return b
}
