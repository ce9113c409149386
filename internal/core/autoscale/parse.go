package autoscale

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/lib/timespan"
)

// Defaults and bounds of the settings.
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

// FieldError describes an invalid key of a trigger.
type FieldError struct{ Key, Text string }

// kedaKeys are keys of a KEDA trigger that are KEDA's own; secret ones it reads from a
// TriggerAuthentication only.
var (
	kedaKeys       = []string{"scalerAddress", "enableTLS", "unsafeSsl", "tlsCertFile"}
	secretKedaKeys = []string{"caCert", "tlsClientCert", "tlsClientKey"}
)

// fromEnvSuffix ends keys whose value KEDA reads from an environment variable of the workload. KEDA sends these
// keys unchanged.
const fromEnvSuffix = "FromEnv"

// Parse reads a trigger from texts by their keys. Each key may have the suffix FromEnv:
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
// Parse requires names but does not validate them. It returns the invalid keys with their errors.
func Parse(texts map[string]string) (Trigger, []FieldError) {
	r := newReader(texts)
	t := Trigger{
		Namespace: r.readText("namespace", DefaultNamespace), Queues: r.readNames("queue"),
		Backlog: r.readNumber("targetBacklog"), Lag: r.readDuration("targetLag", 0),
		CountRunning:      r.readBool("countRunning", true),
		ActivationBacklog: r.readCount("activationBacklog"),
	}
	t.ActivationLag, t.Horizon = r.readDuration("activationLag", 0), r.readDuration("horizon", DefaultHorizon)
	if t.ActivationBacklog > 0 {
		t.ActivationLag, t.Horizon = r.readDuration("activationLag", DefaultActivationLag), 0
	}
	r.addFaultUnless(r.hasValue("targetBacklog") || r.hasValue("targetLag"), "targetBacklog",
		"is missing: give targetBacklog, targetLag or both")
	r.addFaultUnless(!r.hasValue("targetLag") || t.Lag >= time.Millisecond, "targetLag", "must be 1ms or more")
	r.addFaultUnless(!r.hasValue("countRunning") || r.hasValue("targetBacklog"), "countRunning",
		"has no effect without targetBacklog")
	r.addFaultUnless(!r.hasValue("activationLag") || t.ActivationBacklog > 0, "activationLag",
		"has no effect without activationBacklog")
	r.addFaultUnless(!r.hasValue("horizon") || t.ActivationBacklog == 0, "horizon",
		"has no effect with activationBacklog: whoever waits for several jobs does not look ahead for one")
	for _, key := range slices.Sorted(maps.Keys(r.values)) {
		r.addFaultUnless(!slices.Contains(secretKedaKeys, key), key, "is not read by KEDA here: name a Secret with "+
			"it in a TriggerAuthentication")
		r.addFaultUnless(slices.Contains(r.readKeys, key), key,
			"is not known; known are "+strings.Join(r.readKeys[len(kedaKeys):], ", "))
	}
	return t, r.faults
}

// metadataReader reads values from texts, and collects the keys that were read and the faults.
type metadataReader struct {
	values   map[string]string
	readKeys []string
	faults   []FieldError
}

func newReader(texts map[string]string) *metadataReader {
	r := &metadataReader{values: make(map[string]string, len(texts)), readKeys: slices.Clone(kedaKeys)}
	for _, written := range slices.Sorted(maps.Keys(texts)) { // the plain key first
		key := strings.TrimSuffix(written, fromEnvSuffix)
		r.addFaultUnless(r.values[key] == "", key, "is given twice, once as "+key+fromEnvSuffix)
		r.values[key] = strings.TrimSpace(texts[written])
	}
	return r
}

func (r *metadataReader) addFault(key, format string, args ...any) {
	for _, f := range r.faults {
		if f.Key == key {
			return // the first error is enough
		}
	}
	r.faults = append(r.faults, FieldError{key, fmt.Sprintf(format, args...)})
}

func (r *metadataReader) addFaultUnless(good bool, key, text string) {
	if !good {
		r.addFault(key, "%s", text)
	}
}

func (r *metadataReader) hasValue(key string) bool { return r.values[key] != "" }

// readText counts an empty value as none: templates leave such behind.
func (r *metadataReader) readText(key, other string) string {
	if !slices.Contains(r.readKeys, key) {
		r.readKeys = append(r.readKeys, key)
	}
	return cmp.Or(r.values[key], other)
}

// clipText shortens text for error messages.
func clipText(s string) string {
	if len(s) > 40 {
		return s[:40] + "..."
	}
	return s
}

func (r *metadataReader) readNames(key string) (all []string) {
	for name := range strings.SplitSeq(r.readText(key, ""), ",") {
		name = strings.TrimSpace(name)
		switch {
		case name == "":
			r.addFault(key, "is missing, or has an empty name: the queues whose workers are scaled, with commas "+
				"between them")
		case slices.Contains(all, name):
			r.addFault(key, "has %q twice", clipText(name))
		}
		all = append(all, name)
		if len(all) > MaxQueues {
			r.addFault(key, "has more than %d names", MaxQueues)
			return nil
		}
	}
	return all
}

func (r *metadataReader) readNumber(key string) float64 {
	v := r.readText(key, "")
	if v == "" {
		return 0
	}
	n, err := strconv.ParseFloat(v, 64)
	if err != nil || !(n >= MinTarget && n <= MaxTarget) {
		r.addFault(key, "is %q, want a number from %v to %.0f", clipText(v), MinTarget, float64(MaxTarget))
	}
	return n
}

func (r *metadataReader) readCount(key string) int64 {
	v := r.readText(key, "0")
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < 0 || n > MaxTarget {
		r.addFault(key, "is %q, want a whole number from 0 to %.0f", clipText(v), float64(MaxTarget))
	}
	return n
}

func (r *metadataReader) readDuration(key string, other time.Duration) time.Duration {
	v := r.readText(key, other.String())
	d, err := timespan.Parse(v)
	if err != nil || d < 0 || d > MaxSpan {
		r.addFault(key, "is %q, want a duration with a unit, such as 30s or 5m, at most %v", clipText(v), MaxSpan)
	}
	return d
}

func (r *metadataReader) readBool(key string, other bool) bool {
	v := r.readText(key, strconv.FormatBool(other))
	b, err := strconv.ParseBool(v)
	if err != nil {
		r.addFault(key, "is %q, want true or false", clipText(v))
	}
	return b
}
