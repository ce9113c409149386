package observability

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/test/redistest"
)

var (
	variable = regexp.MustCompile(`\$\{?[a-zA-Z_]+\}?`)
	// selector is one choice of series: what an expression is made of.
	selector = regexp.MustCompile(`\b((?:fermata|go|process)[a-z0-9_:]*[a-z0-9]|up|ALERTS)\b(\{[^}]*\})?`)
	groupBy  = regexp.MustCompile(`\b(?:by|on|without|ignoring) *\([^)]*\)`)
	quoted   = regexp.MustCompile(`"[^"]*"`)
)

// fillVariables is an expression as Grafana asks it when everything is chosen.
func fillVariables(expr string) string {
	return variable.ReplaceAllStringFunc(expr, func(v string) string {
		switch strings.Trim(v, "${}") {
		case "__rate_interval", "__range":
			return "20s"
		}
		return ".*"
	})
}

// mayBeEmpty are selectors that find nothing in the test's cluster, with the reason.
var mayBeEmpty = map[string]string{
	`fermata_access_denied_total`:                   "only with --access-file, when somebody is refused",
	`fermata_access_token_expiry_timestamp_seconds`: "only with --access-file, for tokens that end",
	`fermata_audit_export_`:                         "only while an export of the audit is kept",
	`code!="OK"`:                                    "the calls that fail do so once, before the window begins",
	`code=~"Internal|`:                              "no call fails for such a reason here",
	`alertstate="firing"`:                           "alerts wait for minutes before they fire; that some are pending is asked for",
}

// emptyAnswers are whole expressions that find nothing though their selectors do.
var emptyAnswers = map[string]string{
	"[15m] offset 1m))":          "no version appeared while the test looked",
	"fermata_rpc_seconds_bucket": "clients call before the window begins",
	`how="break"}[1m])) > 0`:     "the take-over may be longer ago",
}

// isExcused reports whether an empty result has a reason.
func isExcused(reasons map[string]string, text string) bool {
	for part := range reasons {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}

// selectorsOf are the choices of series in an expression.
func selectorsOf(expr string) []string {
	var found []string
	plain := groupBy.ReplaceAllString(expr, "")
	for _, at := range selector.FindAllStringSubmatchIndex(plain, -1) {
		text := plain[at[0]:at[1]]
		if inQuotes(plain, at[0]) {
			continue
		}
		found = append(found, text)
	}
	return found
}

func inQuotes(text string, at int) bool {
	for _, q := range quoted.FindAllStringIndex(text, -1) {
		if q[0] < at && at < q[1] {
			return true
		}
	}
	return false
}

// question is an expression of a panel or a rule, and whether it must find something.
type question struct {
	what, expr string
	answered   bool
}

// patience is how long new series may take until rates of them are there.
const patience = redistest.Patience

// awaitAnswers evaluates expressions, and each selector in them, until all are as they should
// be or patience is over.
func (p *prometheus) awaitAnswers(t *testing.T, questions ...question) {
	t.Helper()
	poll := time.NewTicker(time.Second)
	defer poll.Stop()
	for deadline := time.Now().Add(patience); len(questions) > 0; <-poll.C {
		last := time.Now().After(deadline)
		var open []question
		for _, q := range questions {
			if fault := p.faultOf(q); fault != "" {
				open = append(open, q)
				if last {
					t.Errorf("%s: %s", q.what, fault)
				}
			}
		}
		if last {
			return
		}
		questions = open
	}
}

// hasNumber reports whether an answer has a figure to show.
func hasNumber(answer []sample) bool {
	return slices.ContainsFunc(answer, func(s sample) bool { return s.Value[1] != "NaN" })
}

// faultOf is what is wrong with an expression now.
func (p *prometheus) faultOf(q question) string {
	expr := fillVariables(q.expr)
	answer, err := p.queryNow(expr)
	switch {
	case err != nil:
		return expr + ": " + err.Error()
	case q.answered && !hasNumber(answer) && !isExcused(emptyAnswers, expr) && !isExcused(mayBeEmpty, expr):
		return expr + " finds nothing"
	}
	selectors := selectorsOf(expr)
	if len(selectors) == 0 {
		return expr + " asks for no metric"
	}
	for _, s := range selectors {
		if isExcused(mayBeEmpty, s) || p.mode.absent != nil && p.mode.absent.MatchString(s) {
			continue
		}
		// What was there lately counts: a gauge of a moment may be gone again.
		if found, err := p.queryNow("last_over_time(" + s + "[1m])"); err != nil || len(found) == 0 {
			return fmt.Sprintf("there is no %s (%v)", s, err)
		}
	}
	return ""
}
