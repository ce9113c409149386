package importer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// valueTree gives access to decoded YAML by path.
type valueTree struct{ root map[string]any }

func (t valueTree) valueAt(path ...string) any {
	var v any = t.root
	for _, key := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[key]
	}
	return v
}

func (t valueTree) textAt(path ...string) string {
	s, _ := t.valueAt(path...).(string)
	return s
}

// numberAt returns an integer; ok is false if there is none or it is out of range.
func (t valueTree) numberAt(path ...string) (n int64, ok bool) {
	switch v := t.valueAt(path...).(type) {
	case int:
		return int64(v), v >= 0
	case float64:
		return int64(v), v >= 0 && v == float64(int64(v)) && v < 1<<40
	}
	return 0, false
}

// readPolicies reads the policies for runs.
func (c *cronJob) readPolicies() {
	c.readOverlap()
	if n, ok := c.values.numberAt("spec", "startingDeadlineSeconds"); ok {
		window := min(max(n, 1), 365*24*3600) // 0 would be no bound
		c.fields.setField("misfire_policy", newMapping().setField("policy", "run_once").setField("catch_up_window",
			(time.Duration(window)*time.Second).String()).setFlowStyle())
		if n < 10 {
			c.addNote("startingDeadlineSeconds below 10: the controller would miss runs; here each is started "+
				"within it", "spec", "startingDeadlineSeconds")
		}
	}
	c.readRetries()
	c.readSuspend()
	c.readHistory()
}

// readSuspend reads a bool as in YAML 1.1, like Kubernetes. An invalid value pauses the job.
func (c *cronJob) readSuspend() {
	if c.manual {
		return // nothing is due
	}
	for _, path := range [][]string{{"spec", "suspend"}, {"spec", "jobTemplate", "spec", "suspend"}} {
		value := c.values.valueAt(path...)
		if value == nil {
			continue
		}
		paused, ok := value.(bool)
		if word, isText := value.(string); isText {
			paused, ok = yaml11Booleans[strings.ToLower(word)]
			if node := nodeAt(c.node, path...); ok && node != nil && node.Style != 0 {
				c.addNote(fmt.Sprintf("suspend is the text %q, which Kubernetes refuses; it is taken for a bool",
					clipText(word, 40)), path...)
			}
		}
		if !ok {
			paused = true
			c.addNote(fmt.Sprintf("suspend: %q is no bool; the job is paused", clipText(fmt.Sprint(value), 40)),
				path...)
		}
		if paused || len(path) == 2 {
			c.fields.setField("paused", paused)
		}
		if paused {
			return
		}
	}
	if n, ok := c.values.numberAt("spec", "jobTemplate", "spec", "parallelism"); ok && n == 0 &&
		c.values.valueAt("spec", "suspend") == nil {
		c.fields.setField("paused", true)
	}
}

// yaml11Booleans are the bools of YAML 1.1.
var yaml11Booleans = map[string]bool{"true": true, "yes": true, "y": true, "on": true, "false": false, "no": false,
	"n": false, "off": false}

// noteMistyped adds notes on values that Kubernetes would reject and that were not read.
func (c *cronJob) noteMistyped() {
	for _, where := range [][]string{{"spec", "timeZone"}, {"spec", "concurrencyPolicy"}} {
		if v := c.values.valueAt(where...); v != nil {
			if _, ok := v.(string); !ok {
				c.addNote(fmt.Sprintf("%s is left out: %q is no text", where[1], clipText(fmt.Sprint(v), 40)), where...)
			}
		}
	}
	job := []string{"spec", "jobTemplate", "spec"}
	pod := []string{"spec", "jobTemplate", "spec", "template", "spec"}
	for _, where := range [][]string{
		{"spec", "startingDeadlineSeconds"}, {"spec", "successfulJobsHistoryLimit"}, {"spec", "failedJobsHistoryLimit"},
		append(slices.Clip(job), "backoffLimit"), append(slices.Clip(job), "activeDeadlineSeconds"),
		append(slices.Clip(pod), "activeDeadlineSeconds"), append(slices.Clip(pod), "terminationGracePeriodSeconds"),
	} {
		if v := c.values.valueAt(where...); v != nil {
			if _, ok := c.values.numberAt(where...); !ok {
				c.addNote(fmt.Sprintf("%s is left out: %q is no number that it can have", where[len(where)-1],
					clipText(fmt.Sprint(v), 40)), where...)
			}
		}
	}
}

func (c *cronJob) readOverlap() {
	switch policy := c.values.textAt("spec", "concurrencyPolicy"); policy {
	case "", "Allow":
		c.fields.setField("overlap_policy", "allow_all")
		c.addNote("concurrencyPolicy Allow: up to ten runs at once (overlap_limit)", "spec", "concurrencyPolicy")
	case "Forbid":
		// The controller starts the last missed run when the live one has ended.
		c.fields.setField("overlap_policy", "buffer_one")
	case "Replace":
		c.fields.setField("overlap_policy", "cancel_other")
	default:
		c.fields.setField("overlap_policy", "skip")
		c.addNote(fmt.Sprintf("concurrencyPolicy %q is unknown; skip is taken", clipText(policy, 40)), "spec",
			"concurrencyPolicy")
	}
}

// Backoff of the Job controller between pods.
const (
	firstPodDelay = "10s"
	maxPodDelay   = "6m0s"
	defaultLimit  = 6
)

// maxGrace is the longest timeout_grace in seconds.
const maxGrace = 300

// readRetries reads attempts and their time. backoffLimit counts retries, not attempts.
func (c *cronJob) readRetries() {
	limit, ok := c.values.numberAt("spec", "jobTemplate", "spec", "backoffLimit")
	if !ok {
		limit = defaultLimit
	}
	if limit > 999 {
		c.addNote("backoffLimit: at most 999 retries", "spec", "jobTemplate", "spec", "backoffLimit")
	}
	retry := newMapping().setField("max_attempts", min(limit, 999)+1)
	if limit > 0 {
		retry.setField("base_delay", firstPodDelay).setField("max_delay", maxPodDelay)
		if overlap := c.values.textAt("spec", "concurrencyPolicy"); overlap != "" && overlap != "Allow" && !c.manual {
			c.addNote("a retry never passes the next run of the schedule: the run ends instead")
		}
	}
	timeout := maxManifestBytes
	seconds, ok := c.values.numberAt("spec", "jobTemplate", "spec", "activeDeadlineSeconds")
	if pod, alsoPod := c.values.numberAt("spec", "jobTemplate", "spec", "template", "spec",
		"activeDeadlineSeconds"); alsoPod && (!ok || pod < seconds) {
		timeout = min(timeout, time.Duration(max(pod, 1))*time.Second)
	}
	switch {
	case ok:
		whole := time.Duration(min(max(seconds, 1), 365*24*3600)) * time.Second
		retry.setField("max_elapsed", whole.String())
		if whole > maxManifestBytes {
			c.addNote("activeDeadlineSeconds: one attempt takes at most 24 h", "spec", "jobTemplate", "spec",
				"activeDeadlineSeconds")
		}
		timeout = min(timeout, whole)
	case timeout == maxManifestBytes:
		c.addNote("there is no activeDeadlineSeconds: an attempt ends after 24 h, the longest there is")
	}
	c.fields.setField("retry_policy", retry.setFlowStyle()).setField("timeout", timeout.String())
	if grace, ok := c.values.numberAt("spec", "jobTemplate", "spec", "template", "spec",
		"terminationGracePeriodSeconds"); ok {
		if grace > maxGrace {
			c.addNote(fmt.Sprintf("terminationGracePeriodSeconds: at most %d s", maxGrace), "spec", "jobTemplate",
				"spec", "template", "spec", "terminationGracePeriodSeconds")
		}
		c.fields.setField("timeout_grace", (time.Duration(min(grace, maxGrace)) * time.Second).String())
	}
}

// readHistory is one number here.
func (c *cronJob) readHistory() {
	good, ok1 := c.values.numberAt("spec", "successfulJobsHistoryLimit")
	bad, ok2 := c.values.numberAt("spec", "failedJobsHistoryLimit")
	if !ok1 && !ok2 {
		return
	}
	if !ok1 {
		good = 3
	}
	if !ok2 {
		bad = 1
	}
	c.fields.setField("history_limit", min(good+bad, 100))
	if good+bad > 0 {
		c.addNote("history limits: the last runs are kept, good or bad, as many as both together", "spec",
			"successfulJobsHistoryLimit")
	}
}

// knownFields are the fields that are imported, have their own note, or make no difference, by the path of their
// mapping.
var knownFields = map[string][]string{
	"spec": {"schedule", "timeZone", "concurrencyPolicy", "startingDeadlineSeconds",
		"suspend", "successfulJobsHistoryLimit", "failedJobsHistoryLimit", "jobTemplate"},
	"spec.jobTemplate":               {"metadata", "spec"},
	"spec.jobTemplate.spec":          {"backoffLimit", "activeDeadlineSeconds", "template", "suspend"},
	"spec.jobTemplate.spec.template": {"metadata", "spec"},
	"spec.jobTemplate.spec.template.spec": {
		"containers", "restartPolicy", "activeDeadlineSeconds", "terminationGracePeriodSeconds", "dnsPolicy",
		"schedulerName", "enableServiceLinks", "imagePullSecrets",
	},
}

// fieldsWithoutEquivalent are fields that a Fermata job does not have, with their notes.
var fieldsWithoutEquivalent = map[string]string{
	"initContainers":          "what they do has to become part of the program",
	"parallelism":             "a run is one program",
	"completions":             "a run is one program, once",
	"completionMode":          "a run is one program",
	"backoffLimitPerIndex":    "a run is one program",
	"maxFailedIndexes":        "a run is one program",
	"successPolicy":           "a run is one program",
	"podFailurePolicy":        "each exit code but 0 is a failure, which is retried",
	"podReplacementPolicy":    "a retry begins when the attempt before it has ended",
	"ttlSecondsAfterFinished": "runs that have ended are kept by their number, history_limit",
	"managedBy":               "the job is Fermata's",
}

// defaultValues are values that mean the same as a missing field.
var defaultValues = map[string]any{"parallelism": 1, "completions": 1, "completionMode": "NonIndexed",
	"podReplacementPolicy": "TerminatingOrFailed"}

// noteLeftOut adds a note for every field without an equivalent.
func (c *cronJob) noteLeftOut() {
	for _, where := range slices.Sorted(maps.Keys(knownFields)) {
		path := strings.Split(where, ".")
		fields, _ := c.values.valueAt(path...).(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(fields)) {
			if !slices.Contains(knownFields[where], key) && !isEmpty(fields[key]) && fields[key] != defaultValues[key] {
				c.addNote(clipText(key, 64)+" is left out: "+lostFieldNote(where, key), append(path, key)...)
			}
		}
	}
	template := []string{"spec", "jobTemplate", "spec", "template"}
	if annotations := append(slices.Clip(template), "metadata",
		"annotations"); !isEmpty(c.values.valueAt(annotations...)) {
		c.addNote("annotations of pods are left out: runs happen in workers", annotations...)
	}
	if restart := append(slices.Clip(template), "spec", "restartPolicy"); c.values.textAt(restart...) == "OnFailure" {
		c.addNote("restartPolicy OnFailure: a failed program is tried again as another attempt", restart...)
	}
}

// lostFieldNote is why a field is left out.
func lostFieldNote(where, key string) string {
	if why, ok := fieldsWithoutEquivalent[key]; ok {
		return why
	}
	for _, place := range slices.Sorted(maps.Keys(knownFields)) {
		i := slices.IndexFunc(knownFields[place], func(name string) bool { return strings.EqualFold(name, key) })
		if i >= 0 && key != "metadata" && key != "spec" {
			return "it has no effect here, " + place + "." + knownFields[place][i] + " is meant?"
		}
	}
	if where == "spec" || where == "spec.jobTemplate" || where == "spec.jobTemplate.spec.template" {
		return "it is no field of a CronJob"
	}
	return "it is a matter of pods, and runs happen in workers"
}

func isEmpty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
}
