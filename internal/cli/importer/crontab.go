package importer

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fermata-io/fermata/internal/core/schedule"
)

// CrontabOptions configure how a crontab is read.
type CrontabOptions struct {
	// System: the entries have a user column, as in /etc/crontab and /etc/cron.d.
	System bool
	// Zone is the time zone of the machine.
	Zone string
	// Queue is the queue of the jobs; {user} in it is replaced by the user. Default: the default queue.
	Queue string
	// Prefix of ids.
	Prefix string
	// Overlap and Timeout are set in the jobs.
	Overlap string
	Timeout time.Duration
	// Budget is shared by the files of an import. Default: one of its own.
	Budget *Budget
}

// maxCrontab is the maximum number of lines of a file.
const maxCrontab = 100_000

// Crontab converts each entry of a crontab to a job. It fails if the budget is spent.
func Crontab(file string, text []byte, o CrontabOptions) ([]Entry, error) {
	t := crontabReader{file: file, options: o, budget: cmp.Or(o.Budget, &Budget{}), env: map[string]string{},
		zone: o.Zone}
	for i, line := range strings.SplitN(strings.TrimPrefix(string(text), "\ufeff"), "\n", maxCrontab+1) {
		if i == maxCrontab {
			t.dropLine(i+1, "", fmt.Sprintf("the file has more than %d lines; the rest is not read", maxCrontab))
			break
		}
		t.readLine(i+1, line)
		if t.budget.err != nil {
			break
		}
	}
	if t.budget.err != nil {
		return nil, t.budget.err
	}
	makeIDsUnique(t.entries)
	return t.entries, nil
}

// crontabReader is a file that is being read; assignments hold for the lines below them.
type crontabReader struct {
	file      string
	options   CrontabOptions
	budget    *Budget
	env       map[string]string
	shell     string
	zone      string
	jitter    int // RANDOM_DELAY, minutes
	hasMailTo bool
	entries   []Entry
}

var (
	assignmentPattern = regexp.MustCompile(`^(?:"([^"]*)"|'([^']*)'|([^\s="'][^\s=]*))\s*=\s*(.*)$`)
	userNamePattern   = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.:/$-]{0,127}$`)
	// timerSettingPattern matches the trigger settings of a systemd timer.
	timerSettingPattern = regexp.MustCompile(`^On(Calendar|Active|Boot|Startup|UnitActive|UnitInactive)(Sec)?$`)
	// A wish of cronie, and of OpenBSD, for a number by chance.
	randomCondition = regexp.MustCompile(`(\d*)~(\d*)`)
)

func (t *crontabReader) readLine(n int, line string) {
	if !utf8.ValidString(line) || strings.ContainsRune(line, 0) {
		t.dropLine(n, line, "is not UTF-8 text; it was skipped")
		return
	}
	line = strings.TrimLeft(strings.TrimSuffix(line, "\r"), " \t")
	if line == "" || line[0] == '#' {
		return
	}
	if m := assignmentPattern.FindStringSubmatch(line); m != nil {
		t.readAssignment(n, line, m[1]+m[2]+m[3], unquote(strings.TrimRight(m[4], " \t")))
		return
	}
	t.readEntry(n, line)
}

func unquote(s string) string {
	if len(s) >= 2 && (s[0] == '"' || s[0] == '\'') && s[len(s)-1] == s[0] {
		return s[1 : len(s)-1]
	}
	return s
}

func (t *crontabReader) dropLine(n int, line, text string) {
	e := Entry{Source: t.sourceName(n, line)}
	t.addNote(&e, n, text)
	t.entries = append(t.entries, e)
}

func (t *crontabReader) addNote(e *Entry, n int, text string) {
	if t.budget.spend(t.file, n, perValue+len(text)) {
		e.Notes = append(e.Notes, Note{t.file, n, text})
	}
}

func (t *crontabReader) sourceName(n int, line string) string {
	return fmt.Sprintf("%s:%d: %s", t.file, n, line)
}

// readAssignment takes a variable: most are the program's, some are cron's own.
func (t *crontabReader) readAssignment(n int, line, name, value string) {
	if timerSettingPattern.MatchString(name) {
		t.dropLine(n, line, name+": is of a timer of systemd, which is not imported: write a line with five fields "+
			"of time and the command of its service")
		return
	}
	switch name {
	case "SHELL":
		t.shell = value
	case "CRON_TZ":
		if _, err := loadZone(value); err != nil {
			t.dropLine(n, line, fmt.Sprintf("CRON_TZ: %q is not a time zone; the lines below keep %s", value, t.zone))
			return
		}
		t.zone = value
	case "TZ":
		t.env[name] = value
		t.dropLine(n, line, "TZ: is given to the programs; cron itself goes by CRON_TZ or the machine's zone, here "+
			""+t.zone)
	case "RANDOM_DELAY":
		minutes, err := strconv.Atoi(value)
		if err != nil || minutes < 0 || minutes > 24*60-1 {
			t.dropLine(n, line, "RANDOM_DELAY: want 0 to 1439 minutes; it is left out")
			return
		}
		t.jitter = minutes
	case "MAILTO", "MAILFROM", "CONTENT_TYPE", "CONTENT_TRANSFER_ENCODING":
		if !t.hasMailTo && value != "" {
			t.dropLine(n, line, name+": output is not mailed; its end is kept with each run (fermata jobs runs)")
		}
		t.hasMailTo = true
	default:
		t.env[name] = value
	}
}

func loadZone(name string) (*time.Location, error) {
	if name == "" || name == "Local" {
		return nil, fmt.Errorf("no name of a zone")
	}
	return time.LoadLocation(name)
}

// splitFields splits a line into n fields and the rest.
func splitFields(line string, n int) (words []string, rest string) {
	rest = line
	for range n {
		rest = strings.TrimLeft(rest, " \t")
		end := strings.IndexAny(rest, " \t")
		if end < 0 {
			return append(words, rest), ""
		}
		words, rest = append(words, rest[:end]), rest[end:]
	}
	return words, strings.TrimLeft(rest, " \t")
}

func (t *crontabReader) readEntry(n int, line string) {
	e := Entry{Source: t.sourceName(n, line)}
	note := func(text string) { t.addNote(&e, n, text) }
	defer func() { t.entries = append(t.entries, e) }()
	line = strings.TrimPrefix(line, "-") // of cronie: not to the system's log
	times := 5
	if strings.HasPrefix(line, "@") {
		times = 1
	}
	words, command := splitFields(line, times)
	if strings.EqualFold(words[0], "@every") { // of schedulers in containers, such as supercronic
		var interval []string
		interval, command = splitFields(command, 1)
		words = append(words, interval...)
	}
	user := ""
	if t.options.System {
		var who []string
		who, command = splitFields(command, 1)
		user = who[0]
		if (!userNamePattern.MatchString(user) || isCommand(user)) && command != "" {
			note(fmt.Sprintf("%q is no user: is this a user's crontab, without that column? It was skipped",
				clipText(user, 40)))
			return
		}
	}
	if len(words) < times || command == "" {
		note("is neither an assignment nor an entry: there is no command; it was skipped")
		return
	}
	rule, err := t.readRule(words, note)
	if err != nil {
		note(err.Error() + "; it was skipped")
		return
	}
	if !t.budget.spendProgram(t.file, n, t.env, t.shell, command) {
		note(tooLarge)
		return
	}
	t.buildJob(&e, rule, strings.Join(words, " "), command, user, note)
}

// readRule reads the time of an entry.
func (t *crontabReader) readRule(words []string, note func(string)) (*yamlMapping, error) {
	expression := strings.Join(words, " ")
	if seconds, ok := strings.CutPrefix(expression, "@"); ok {
		if d, err := time.ParseDuration(strings.TrimPrefix(seconds, "every ")); err == nil &&
			strings.HasPrefix(seconds, "every ") {
			if d < 5*time.Second || d > 365*24*time.Hour {
				return nil, fmt.Errorf("%s: an interval is 5 s to a year", clipText(expression, 80))
			}
			return newMapping().setField("interval",
				newMapping().setField("every", d.Truncate(time.Second).String()).setFlowStyle()), nil
		}
		if n, err := strconv.Atoi(seconds); err == nil { // of FreeBSD: so long after the end of the last run
			if n < 5 || n > 365*24*3600 {
				return nil, fmt.Errorf("%s: an interval is 5 s to a year", expression)
			}
			return newMapping().setField("interval",
				newMapping().setField("every", (time.Duration(n)*time.Second).String()).setField("fixed_delay",
					true).setFlowStyle()), nil
		}
	}
	switch strings.ToLower(expression) {
	case "@reboot":
		return nil, fmt.Errorf("@reboot: jobs know nothing of machines that start")
	case "@every_minute":
		expression = "* * * * *"
	case "@every_second":
		return nil, fmt.Errorf("@every_second: the shortest interval is 5 s")
	}
	if strings.HasPrefix(expression, "@") {
		expression = strings.ToLower(expression)
	}
	if randomCondition.MatchString(expression) {
		expression = randomCondition.ReplaceAllStringFunc(expression, func(s string) string {
			low, high, _ := strings.Cut(s, "~")
			if low == "" || high == "" {
				return "H"
			}
			return "H(" + low + "-" + high + ")"
		})
		note("a number by chance became H, which is another number for each job, and stays the same")
	}
	// Steps, names of secondary dialects and the like: what is not understood here would
	// not be understood by a node.
	spec := schedule.Spec{Kind: schedule.KindCron, Cron: []string{expression}, TimeZone: t.zone}
	if _, err := schedule.Compile(spec, time.Unix(1_700_000_000, 0), 1); err != nil || len(expression) > 256 {
		return nil, fmt.Errorf("%s: not understood: %w", clipText(expression, 80), err)
	}
	cron := newMapping().setField("expressions", []string{expression}).setField("time_zone", t.zone).setFlowStyle()
	rule := newMapping().setField("cron", cron)
	if t.jitter > 0 {
		rule.setField("jitter", (time.Duration(t.jitter) * time.Minute).String())
	}
	return rule, nil
}
