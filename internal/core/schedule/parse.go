package schedule

import (
	"fmt"
	"strings"
	"time"

	cron "github.com/netresearch/go-cron"

	"github.com/fermata-io/fermata/internal/lib/timespan"
)

const (
	maxExpressions   = 16
	maxExpressionLen = 256
	everyPrefix      = "@every"
)

const grammar = cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Extended

var (
	minuteParser = cron.MustNewParser(grammar)
	secondParser = cron.MustNewParser(grammar | cron.Second)
)

var macros = map[string]string{
	"@yearly":   "0 0 1 1 *",
	"@annually": "0 0 1 1 *",
	"@monthly":  "0 0 1 * *",
	"@weekly":   "0 0 * * 0",
	"@daily":    "0 0 * * *",
	"@midnight": "0 0 * * *",
	"@hourly":   "0 * * * *",
}

// checkText refuses expressions that are invalid in any grammar.
func checkText(text string) error {
	if len(text) > maxExpressionLen {
		return fmt.Errorf("%d bytes, at most %d are allowed", len(text), maxExpressionLen)
	}
	for i := range len(text) {
		if c := text[i]; c != '\t' && (c < ' ' || c > '~') {
			return fmt.Errorf("byte %d is not printable ASCII", i)
		}
	}
	text = strings.TrimSpace(text)
	if strings.HasPrefix(text, "TZ=") || strings.HasPrefix(text, "CRON_TZ=") {
		return fmt.Errorf("a TZ= or CRON_TZ= prefix is not accepted: put the zone into time_zone")
	}
	if text == "" {
		return fmt.Errorf("empty expression")
	}
	return nil
}

// parseFields reads one expression that checkText accepted. wild is true if its minute or hour field begins with
// a star.
func parseFields(text string, seconds bool, seed uint64) (f fields, wild bool, err error) {
	text, err = expandMacro(text, seconds)
	if err != nil {
		return fields{}, false, err
	}
	parser, lead := minuteParser, 0
	if seconds {
		parser, lead = secondParser, 1
	}
	words := strings.Fields(text)
	if err := checkCount(words, seconds); err != nil {
		return fields{}, false, err
	}
	wild = beginsWithStar(words[lead]) || beginsWithStar(words[lead+1])
	allDays := beginsWithStar(words[lead+2]) || beginsWithStar(words[lead+4])
	if err := resolveHash(words, seed); err != nil {
		return fields{}, false, err
	}
	if err := checkItems(words); err != nil {
		return fields{}, false, err
	}
	parsed, err := parseRecovering(parser, strings.Join(words, " "))
	if err != nil {
		return fields{}, false, err
	}
	return newFields(parsed, allDays), wild, nil
}

// expandMacro replaces a macro by its fields.
func expandMacro(text string, seconds bool) (string, error) {
	text = strings.TrimSpace(text)
	if !strings.HasPrefix(text, "@") {
		return text, nil
	}
	full, ok := macros[text]
	if !ok {
		return "", fmt.Errorf("unknown macro %q", text)
	}
	if seconds {
		full = "0 " + full
	}
	return full, nil
}

// parseRecovering keeps a defect of the grammar library from taking the process
// down: the text comes from users, and its ancestor did panic on some.
func parseRecovering(p cron.Parser, text string) (spec *cron.SpecSchedule, err error) {
	defer func() {
		if r := recover(); r != nil {
			spec, err = nil, fmt.Errorf("cannot be parsed: %v", r)
		}
	}()
	parsed, err := p.Parse(text)
	if err != nil {
		return nil, err
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return nil, fmt.Errorf("cannot be parsed")
	}
	return spec, nil
}

func beginsWithStar(field string) bool { return field[0] == '*' || field[0] == '?' }

// isEvery reports whether text is an @every expression.
func isEvery(text string) bool {
	return strings.HasPrefix(strings.TrimSpace(text), everyPrefix)
}

func parseEvery(text string) (time.Duration, error) {
	rest := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(text), everyPrefix))
	d, err := timespan.Parse(rest)
	if err != nil {
		return 0, fmt.Errorf("@every needs a duration such as 30s, 1h30m or 7d, not %q", rest)
	}
	return d, nil
}

// WithoutDays returns cron expressions with the duration of @every as Go writes it: "@every 7d" becomes
// "@every 168h0m0s". Nodes of earlier versions cannot parse weeks and days, and read what is stored. Other expressions
// are unchanged.
func WithoutDays(expressions []string) []string {
	if len(expressions) != 1 || !isEvery(expressions[0]) {
		return expressions
	}
	rest := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(expressions[0]), everyPrefix))
	if !strings.ContainsAny(rest, "wd") {
		return expressions
	}
	d, err := timespan.Parse(rest)
	if err != nil {
		return expressions
	}
	return []string{everyPrefix + " " + d.String()}
}
