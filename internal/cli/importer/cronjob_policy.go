package importer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// tree reads what YAML decoded by paths.
type tree struct{ root map[string]any }

func (t tree) get(path ...string) any {
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

func (t tree) text(path ...string) string {
	s, _ := t.get(path...).(string)
	return s
}

// number reads a whole number; ok is false if there is none, or it is out of range.
func (t tree) number(path ...string) (n int64, ok bool) {
	switch v := t.get(path...).(type) {
	case int:
		return int64(v), v >= 0
	case float64:
		return int64(v), v >= 0 && v == float64(int64(v)) && v < 1<<40
	}
	return 0, false
}

// policies reads what governs the runs.
func (c *cronJob) policies() {
	c.overlap()
	if n, ok := c.all.number("spec", "startingDeadlineSeconds"); ok {
		window := min(max(n, 1), 365*24*3600) // 0 would be no bound
		c.out.set("misfire_policy", newMapping().set("policy", "run_once").set("catch_up_window", (time.Duration(window)*time.Second).String()).flow())
		if n < 10 {
			c.note("startingDeadlineSeconds below 10: the controller would miss runs; here each is started within it", "spec", "startingDeadlineSeconds")
		}
	}
	c.retries()
	c.suspend()
	c.history()
}

// suspend reads bools as Kubernetes does, which reads YAML 1.1. What is none pauses the job.
func (c *cronJob) suspend() {
	if c.manual {
		return // nothing is due
	}
	for _, path := range [][]string{{"spec", "suspend"}, {"spec", "jobTemplate", "spec", "suspend"}} {
		value := c.all.get(path...)
		if value == nil {
			continue
		}
		paused, ok := value.(bool)
		if word, isText := value.(string); isText {
			paused, ok = oldBools[strings.ToLower(word)]
			if node := below(c.node, path...); ok && node != nil && node.Style != 0 {
				c.note(fmt.Sprintf("suspend is the text %q, which Kubernetes refuses; it is taken for a bool", clip(word, 40)), path...)
			}
		}
		if !ok {
			paused = true
			c.note(fmt.Sprintf("suspend: %q is no bool; the job is paused", clip(fmt.Sprint(value), 40)), path...)
		}
		if paused || len(path) == 2 {
			c.out.set("paused", paused)
		}
		if paused {
			return
		}
	}
	if n, ok := c.all.number("spec", "jobTemplate", "spec", "parallelism"); ok && n == 0 && c.all.get("spec", "suspend") == nil {
		c.out.set("paused", true)
	}
}

// oldBools are the bools of YAML 1.1.
var oldBools = map[string]bool{"true": true, "yes": true, "y": true, "on": true, "false": false, "no": false, "n": false, "off": false}

// mistyped tells of values that Kubernetes would refuse, and that were not read.
func (c *cronJob) mistyped() {
	for _, where := range [][]string{{"spec", "timeZone"}, {"spec", "concurrencyPolicy"}} {
		if v := c.all.get(where...); v != nil {
			if _, ok := v.(string); !ok {
				c.note(fmt.Sprintf("%s is left out: %q is no text", where[1], clip(fmt.Sprint(v), 40)), where...)
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
		if v := c.all.get(where...); v != nil {
			if _, ok := c.all.number(where...); !ok {
				c.note(fmt.Sprintf("%s is left out: %q is no number that it can have", where[len(where)-1], clip(fmt.Sprint(v), 40)), where...)
			}
		}
	}
}

func (c *cronJob) overlap() {
	switch policy := c.all.text("spec", "concurrencyPolicy"); policy {
	case "", "Allow":
		c.out.set("overlap_policy", "allow_all")
		c.note("concurrencyPolicy Allow: up to ten runs at once (overlap_limit)", "spec", "concurrencyPolicy")
	case "Forbid":
		// The controller starts the last one missed when the live run has ended.
		c.out.set("overlap_policy", "buffer_one")
	case "Replace":
		c.out.set("overlap_policy", "cancel_other")
	default:
		c.out.set("overlap_policy", "skip")
		c.note(fmt.Sprintf("concurrencyPolicy %q is unknown; skip is taken", clip(policy, 40)), "spec", "concurrencyPolicy")
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

// retries reads attempts and their time. backoffLimit counts retries, not attempts.
func (c *cronJob) retries() {
	limit, ok := c.all.number("spec", "jobTemplate", "spec", "backoffLimit")
	if !ok {
		limit = defaultLimit
	}
	if limit > 999 {
		c.note("backoffLimit: at most 999 retries", "spec", "jobTemplate", "spec", "backoffLimit")
	}
	retry := newMapping().set("max_attempts", min(limit, 999)+1)
	if limit > 0 {
		retry.set("base_delay", firstPodDelay).set("max_delay", maxPodDelay)
		if overlap := c.all.text("spec", "concurrencyPolicy"); overlap != "" && overlap != "Allow" && !c.manual {
			c.note("a retry never passes the next run of the schedule: the run ends instead")
		}
	}
	timeout := longest
	seconds, ok := c.all.number("spec", "jobTemplate", "spec", "activeDeadlineSeconds")
	if pod, alsoPod := c.all.number("spec", "jobTemplate", "spec", "template", "spec", "activeDeadlineSeconds"); alsoPod && (!ok || pod < seconds) {
		timeout = min(timeout, time.Duration(max(pod, 1))*time.Second)
	}
	switch {
	case ok:
		whole := time.Duration(min(max(seconds, 1), 365*24*3600)) * time.Second
		retry.set("max_elapsed", whole.String())
		if whole > longest {
			c.note("activeDeadlineSeconds: one attempt takes at most 24 h", "spec", "jobTemplate", "spec", "activeDeadlineSeconds")
		}
		timeout = min(timeout, whole)
	case timeout == longest:
		c.note("there is no activeDeadlineSeconds: an attempt ends after 24 h, the longest there is")
	}
	c.out.set("retry_policy", retry.flow()).set("timeout", timeout.String())
	if grace, ok := c.all.number("spec", "jobTemplate", "spec", "template", "spec", "terminationGracePeriodSeconds"); ok {
		if grace > maxGrace {
			c.note(fmt.Sprintf("terminationGracePeriodSeconds: at most %d s", maxGrace), "spec", "jobTemplate", "spec", "template", "spec", "terminationGracePeriodSeconds")
		}
		c.out.set("timeout_grace", (time.Duration(min(grace, maxGrace)) * time.Second).String())
	}
}

// history is one number here.
func (c *cronJob) history() {
	good, ok1 := c.all.number("spec", "successfulJobsHistoryLimit")
	bad, ok2 := c.all.number("spec", "failedJobsHistoryLimit")
	if !ok1 && !ok2 {
		return
	}
	if !ok1 {
		good = 3
	}
	if !ok2 {
		bad = 1
	}
	c.out.set("history_limit", min(good+bad, 100))
	if good+bad > 0 {
		c.note("history limits: the last runs are kept, good or bad, as many as both together", "spec", "successfulJobsHistoryLimit")
	}
}

// known are the fields that are in the job, or in a note of their own, or make no
// difference, by the path of the mapping that has them.
var known = map[string][]string{
	"spec":                           {"schedule", "timeZone", "concurrencyPolicy", "startingDeadlineSeconds", "suspend", "successfulJobsHistoryLimit", "failedJobsHistoryLimit", "jobTemplate"},
	"spec.jobTemplate":               {"metadata", "spec"},
	"spec.jobTemplate.spec":          {"backoffLimit", "activeDeadlineSeconds", "template", "suspend"},
	"spec.jobTemplate.spec.template": {"metadata", "spec"},
	"spec.jobTemplate.spec.template.spec": {
		"containers", "restartPolicy", "activeDeadlineSeconds", "terminationGracePeriodSeconds", "dnsPolicy", "schedulerName", "enableServiceLinks", "imagePullSecrets",
	},
}

// lostFields are fields by which a Job does more than run one program once, and what to know of them.
var lostFields = map[string]string{
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

// usualValues are values that say no more than a field that is missing.
var usualValues = map[string]any{"parallelism": 1, "completions": 1, "completionMode": "NonIndexed", "podReplacementPolicy": "TerminatingOrFailed"}

// leftOut notes every field that a job has nothing for.
func (c *cronJob) leftOut() {
	for _, where := range slices.Sorted(maps.Keys(known)) {
		path := strings.Split(where, ".")
		fields, _ := c.all.get(path...).(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(fields)) {
			if !slices.Contains(known[where], key) && !isEmpty(fields[key]) && fields[key] != usualValues[key] {
				c.note(clip(key, 64)+" is left out: "+lost(where, key), append(path, key)...)
			}
		}
	}
	template := []string{"spec", "jobTemplate", "spec", "template"}
	if annotations := append(slices.Clip(template), "metadata", "annotations"); !isEmpty(c.all.get(annotations...)) {
		c.note("annotations of pods are left out: runs happen in workers", annotations...)
	}
	if restart := append(slices.Clip(template), "spec", "restartPolicy"); c.all.text(restart...) == "OnFailure" {
		c.note("restartPolicy OnFailure: a failed program is tried again as another attempt", restart...)
	}
}

// lost is why a field is left out.
func lost(where, key string) string {
	if why, ok := lostFields[key]; ok {
		return why
	}
	for _, place := range slices.Sorted(maps.Keys(known)) {
		i := slices.IndexFunc(known[place], func(name string) bool { return strings.EqualFold(name, key) })
		if i >= 0 && key != "metadata" && key != "spec" {
			return "it has no effect here, " + place + "." + known[place][i] + " is meant?"
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
