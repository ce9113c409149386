package job

import (
	"cmp"
	"fmt"
	"sort"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/fermata-io/fermata/internal/core/backoff"
)

// Violation describes one invalid field. Field is its path in the API.
type Violation struct {
	Field, Description string
	// Cause is why the field was not looked at; nil: it is invalid.
	Cause error
}

// Limits are the bounds that a cluster may set for itself.
type Limits struct {
	// MaxPayload in bytes. Default 256 KiB.
	MaxPayload int
	// MinInterval is the shortest time between nominal times. Default 5 s.
	MinInterval time.Duration
	// MaxLabels of one job. Default 32.
	MaxLabels int
	// Work bounds the schedules of one call together; nil bounds each by itself only.
	Work ScheduleWork
}

// DefaultLimits returns those of a cluster that sets none.
func DefaultLimits() Limits {
	return Limits{MaxPayload: 256 << 10, MinInterval: 5 * time.Second, MaxLabels: 32}
}

// WithDefaults fills the limits that are not set.
func (l Limits) WithDefaults() Limits {
	def := DefaultLimits()
	return Limits{
		MaxPayload:  cmp.Or(l.MaxPayload, def.MaxPayload),
		MinInterval: cmp.Or(l.MinInterval, def.MinInterval),
		MaxLabels:   cmp.Or(l.MaxLabels, def.MaxLabels),
	}
}

// Bounds that no cluster changes.
const (
	MaxID           = 128
	MaxName         = 64 // of namespaces and queues
	MaxHandler      = 128
	MaxLabel        = 128 // bytes of a key or a value
	MaxTimeout      = 24 * time.Hour
	MaxTimeoutGrace = 5 * time.Minute
	MaxHistory      = 100
	MaxRequestID    = 64
	MaxTarget       = 128
	MaxLockKey      = 128
	MaxPauseAfter   = 1_000_000
	MaxMaxLag       = 30 * 24 * time.Hour
	// maxFilterLabels is more than clusters have a reason to allow of one job.
	maxFilterLabels = 64
	// MaxKept bounds retention and the life of dead letters.
	MaxKept = backoff.MaxDelay
)

// Validate lists everything that is wrong with a definition, nothing for a good
// one. Paths are those of CreateJobRequest: "parent", "job_id", "job.timeout",
// "job.schedule.cron.expressions[0]". AnchorMS must be set.
func Validate(d *Definition, l Limits) []Violation {
	v := violations{prefix: "job."}
	v.checkKey(d.Key)
	v.add("queue", validateName(d.Queue))
	v.addUnless(d.Priority <= MaxPriority, "priority", "is %d, want 0 to %d", d.Priority, MaxPriority)
	v.checkText("handler", d.Handler, 1, MaxHandler)
	v.addUnless(d.PayloadSize() <= l.MaxPayload, "payload", "has %d bytes, at most %d are allowed", d.PayloadSize(),
		l.MaxPayload)
	v.checkLabels(d.Labels, l.MaxLabels)
	v.list = append(v.list, ValidateSchedule("job.schedule", d.Schedule, d.AnchorMS.Time(), l)...)
	v.checkPolicies(d)
	v.checkRunPolicies(d)
	v.checkDuration("timeout", d.Timeout, time.Millisecond, MaxTimeout)
	v.checkDuration("timeout_grace", d.TimeoutGrace, 0, MaxTimeoutGrace)
	v.addUnless(d.HistoryLimit >= 0 && d.HistoryLimit <= MaxHistory, "history_limit", "is %d, want 0 to %d",
		d.HistoryLimit, MaxHistory)
	v.checkDuration("retention", d.Retention, 0, MaxKept)
	v.checkDuration("dead_letter_ttl", d.DeadLetterTTL, 0, MaxKept)
	return v.list
}

// ValidateKey checks the parts of a job's name.
func ValidateKey(k Key) []Violation {
	var v violations
	v.checkKey(k)
	return v.list
}

// ValidateFilter validates the filter of a request; paths are those of the API. A value that no job can have is
// refused.
func ValidateFilter(f Filter) []Violation {
	// The id is a placeholder, so that only the namespace can be invalid.
	var v violations
	if !f.AllNamespaces {
		v.list = ValidateKey(Key{Namespace: f.Namespace, ID: "x"})
	}
	if f.Queue != "" {
		v.add("queue", validateName(f.Queue))
	}
	if f.IDPrefix != "" {
		v.add("id_prefix", validateID(f.IDPrefix, MaxID))
	}
	v.checkLabels(f.Labels, maxFilterLabels)
	v.addUnless(f.MinFailures >= 0, "min_consecutive_failures", "is negative")
	return v.list
}

// ValidateRequestID checks a request id that only makes a call repeatable. It
// returns "" for a good one; an empty one is good.
func ValidateRequestID(id string) string {
	if id == "" {
		return ""
	}
	return validateText(id, 1, MaxRequestID)
}

// ValidateManualID checks a request id that becomes part of a run's name.
func ValidateManualID(id string) string {
	return validateID(id, MaxRequestID)
}

// ValidateRunID checks the id of a run that a client names: see [RunID].
func ValidateRunID(id string) string { return validateID(id, MaxID) }

type violations struct {
	prefix string
	list   []Violation
}

func (v *violations) add(field, fault string) {
	if fault != "" {
		v.list = append(v.list, Violation{Field: v.prefix + field, Description: fault})
	}
}

func (v *violations) addUnless(ok bool, field, format string, args ...any) {
	if !ok {
		v.add(field, fmt.Sprintf(format, args...))
	}
}

func (v *violations) checkKey(k Key) {
	if fault := validateName(k.Namespace); fault != "" {
		v.list = append(v.list, Violation{Field: "parent", Description: "namespace " + fault})
	}
	if fault := validateID(k.ID, MaxID); fault != "" {
		v.list = append(v.list, Violation{Field: "job_id", Description: fault})
	}
}

func (v *violations) checkText(field, s string, low, high int) {
	v.add(field, validateText(s, low, high))
}

func (v *violations) checkLabels(labels map[string]string, most int) {
	if len(labels) > most {
		// Of a million not one more is looked at.
		v.add("labels", fmt.Sprintf("has %d entries, at most %d are allowed", len(labels), most))
		return
	}
	keys := make([]string, 0, len(labels))
	for k := range labels {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, k := range keys {
		if fault := validateBytes(k, 1); fault != "" {
			v.add("labels", fmt.Sprintf("key %q %s", Clip(k, 40), fault))
		}
		if fault := validateBytes(labels[k], 0); fault != "" {
			v.add(fmt.Sprintf("labels[%q]", Clip(k, 40)), "value "+fault)
		}
	}
}

func validateBytes(s string, low int) string {
	if len(s) < low || len(s) > MaxLabel {
		return fmt.Sprintf("has %d bytes, want %d to %d", len(s), low, MaxLabel)
	}
	return validateText(s, low, MaxLabel)
}

func (v *violations) checkDuration(field string, d, low, high time.Duration) {
	if d < low || d > high { // not check: its arguments would be allocated for each good job
		v.add(field, fmt.Sprintf("is %v, want %v to %v", d, low, high))
	}
	v.checkWholeMS(field, d)
}

func (v *violations) checkPolicies(d *Definition) {
	for _, e := range d.Retry.Validate() {
		v.add("retry_policy."+e.Field, e.Reason)
	}
	for _, e := range d.Backoff.Validate() {
		v.add("backoff_policy."+e.Field, e.Reason)
	}
	v.addUnless(d.Retry.MaxAttempts >= 1, "retry_policy.max_attempts", "is %d, want 1 to %d", d.Retry.MaxAttempts,
		backoff.MaxAttempts)
	v.checkWholeMS("retry_policy.base_delay", d.Retry.Base)
	v.checkWholeMS("retry_policy.max_delay", d.Retry.MaxDelay)
	v.checkWholeMS("retry_policy.max_elapsed", d.Retry.MaxElapsed)
	v.checkWholeMS("backoff_policy.max_delay", d.Backoff.MaxDelay)
	v.checkWholeMS("backoff_policy.stale_after", d.Backoff.StaleAfter)
	v.checkDuration("backoff_policy.min_interval", d.MinInterval, 0, backoff.MaxDelay)
	v.checkDuration("backoff_policy.max_interval", d.MaxInterval, 0, backoff.MaxDelay)
	v.addUnless(d.MaxInterval <= 0 || d.MaxInterval >= d.MinInterval, "backoff_policy.max_interval",
		"%v is shorter than min_interval %v", d.MaxInterval, d.MinInterval)
}

// checkRunPolicies checks the policies for overlapping, late and resource-sharing runs.
func (v *violations) checkRunPolicies(d *Definition) {
	most := 0
	switch {
	case d.Overlap > OverlapTerminateOther:
		v.add("overlap_policy", "is unknown")
	case d.Overlap == OverlapAllowAll:
		most = MaxConcurrentRuns
	default:
		most = MaxBufferedRuns
	}
	v.addUnless(d.OverlapLimit >= 0 && d.OverlapLimit <= most, "overlap_limit", "is %d, want 0 (%d) to %d",
		d.OverlapLimit, DefaultOverlapLimit, most)
	v.addUnless(d.Misfire.Policy <= MisfireRunAll, "misfire_policy.policy", "is unknown")
	v.checkDuration("misfire_policy.catch_up_window", d.Misfire.Window, 0, backoff.MaxDelay)
	v.addUnless(d.Misfire.MaxCatchUp >= 0 && d.Misfire.MaxCatchUp <= MaxCatchUpRuns, "misfire_policy.max_catch_up",
		"is %d, want 0 (%d) to %d", d.Misfire.MaxCatchUp, DefaultCatchUp, MaxCatchUpRuns)
	v.addUnless(d.Misfire.MaxCatchUp == 0 || d.Misfire.Policy == MisfireRunAll, "misfire_policy.max_catch_up",
		"has no effect without POLICY_RUN_ALL")
	v.checkLocks(d.Locks)
	if d.Target != "" {
		v.checkText("target", d.Target, 1, MaxTarget)
	}
	v.addUnless(d.PauseAfter >= 0 && d.PauseAfter <= MaxPauseAfter, "pause_after_failures",
		"is %d, want 0 (never) to %d", d.PauseAfter, MaxPauseAfter)
	v.checkDuration("max_lag", d.MaxLag, 0, MaxMaxLag)
	v.addUnless(!d.Backoff.WithinSlot || d.Schedule.Kind.Local(), "backoff_policy.within_period",
		"is for cron and calendar schedules only")
	v.addUnless(!d.Backoff.WithinSlot || !d.Backoff.Disabled, "backoff_policy.within_period",
		"contradicts disabled: there is no backoff to keep within the slot")
}

func (v *violations) checkLocks(locks []Lock) {
	v.addUnless(len(locks) <= MaxLocks, "locks", "has %d entries, at most %d are allowed", len(locks), MaxLocks)
	for i, l := range locks[:min(len(locks), MaxLocks)] {
		field := fmt.Sprintf("locks[%d]", i)
		v.checkText(field+".key", l.Key, 1, MaxLockKey)
		v.addUnless(l.Limit >= 1 && l.Limit <= MaxLockLimit, field+".limit", "is %d, want 1 to %d", l.Limit,
			MaxLockLimit)
		for _, other := range locks[:i] {
			v.addUnless(other.Key != l.Key, field+".key", "%q is named twice", Clip(l.Key, 40))
		}
	}
}

// checkWholeMS checks the precision of a duration whose range its policy checks.
func (v *violations) checkWholeMS(field string, d time.Duration) {
	if d%time.Millisecond != 0 {
		v.add(field, fmt.Sprintf("is %v, want whole milliseconds", d))
	}
}

// validateName checks a namespace or a queue: [A-Za-z0-9][A-Za-z0-9._-]{0,63}.
func validateName(s string) string { return validateChars(s, MaxName, "._-") }

// validateID checks an id: [A-Za-z0-9][A-Za-z0-9._:~-]*.
func validateID(s string, most int) string { return validateChars(s, most, "._:~-") }

func validateChars(s string, most int, marks string) string {
	switch {
	case s == "":
		return "is empty"
	case len(s) > most:
		return fmt.Sprintf("has %d characters, at most %d are allowed", len(s), most)
	case !isAlphanumeric(s[0]):
		return fmt.Sprintf("%q does not start with a letter or digit", Clip(s, 40))
	}
	for i := range len(s) {
		if !isAlphanumeric(s[i]) && strings.IndexByte(marks, s[i]) < 0 {
			return fmt.Sprintf("%q has characters other than letters, digits and %s", Clip(s, 40), marks)
		}
	}
	return ""
}

func isAlphanumeric(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
}

// validateText checks text for people and routing: valid UTF-8, no control
// characters, so many characters.
func validateText(s string, low, high int) string {
	switch n := utf8.RuneCountInString(s); {
	case s == "" && low > 0:
		return "is empty"
	case !utf8.ValidString(s):
		return "is not valid UTF-8"
	case n > high:
		return fmt.Sprintf("has %d characters, at most %d are allowed", n, high)
	case strings.ContainsFunc(s, unicode.IsControl):
		return "has control characters"
	}
	return ""
}
