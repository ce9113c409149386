package importer

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// buildJob converts an entry to a job.
func (t *crontabReader) buildJob(e *Entry, rule *yamlMapping, times, command, user string, note func(string)) {
	e.id = shortHash(times, command, user)
	command, single, err := entryOptions(command)
	if err != nil {
		note(err.Error() + "; it was skipped")
		return
	}
	text, stdin := splitPercent(command)
	s := readScript(text)
	switch first := firstWord(text); {
	case minTimeout.MatchString(first):
		e.turnOff(fmt.Sprintf("%q is a sixth field of the time, which cron takes for the command",
			clipText(first, 40)), note)
	case strings.HasPrefix(first, "{{"):
		e.turnOff("the command is a placeholder of a template", note)
	}
	if stdin != "" {
		if s.unterminated {
			e.turnOff("the first % that no backslash precedes ends the command, in the middle of a quotation, so "+
				"that cron cannot run it either: write \\%", note)
		} else {
			note("the first % that no backslash precedes ends the command; what follows is its input")
		}
	}
	text = t.runScript(s, note)
	argv, exec := t.readProgram(e, text, note)
	if stdin != "" {
		exec.setField("stdin", stdin)
	}
	switch {
	case !hasValidReferences(stdin):
		e.turnOff("${secret: in the input begins the name of a secret here, and no such name follows", note)
	case strings.Contains(stdin, secretReference):
		note("what begins with ${secret: in the input means a secret here")
	}
	e.id = t.options.Prefix + commandName(argv, text) + "-" + e.id
	m := newMapping().setField("id", e.id)
	if queue := strings.ReplaceAll(t.options.Queue, "{user}", queueOf(user)); queue != "" {
		m.setField("queue", queue)
	}
	if user != "" {
		m.setField("labels", newMapping().setField("crontab.user", user).setFlowStyle())
		if !strings.Contains(t.options.Queue, "{user}") {
			note("ran as " + user + ": a program runs as the user of its worker, or of --exec-user; --queue " +
				"'cron-{user}' gives each user a queue")
		}
	} else if first := strings.Fields(text + " ."); !t.options.System && systemUsers[first[0]] {
		note(first[0] + " looks like a user: with a column of users, as in /etc/crontab, import it by " +
			"--user-column yes")
	}
	m.setField("exec", exec).setField("schedule", rule)
	if rule.node.Content[0].Value != "interval" {
		m.setField("misfire_policy", newMapping().setField("policy", "skip").setFlowStyle())
	}
	overlap := t.options.Overlap
	if single && overlap == "allow_all" {
		overlap = "skip"
	}
	m.setField("overlap_policy", overlap)
	e.fields = m.setField("timeout", t.options.Timeout.String())
}

// minTimeout is a field of the time in the place of the command: stars, numbers, days or months.
var minTimeout = regexp.MustCompile(`(?i)^([*?][*?/0-9,-]*|\d[\d,/-]*|` +
	`((sun|mon|tue|wed|thu|fri|sat|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)([,-]|$))+)$`)

// entryOptions removes the options that OpenBSD, and partly FreeBSD, allow before the command: -n and -q concern
// mail and the system log, -s allows one run at a time.
func entryOptions(command string) (rest string, single bool, err error) {
	for strings.HasPrefix(command, "-") {
		words, after := splitFields(command, 1)
		if strings.Trim(words[0], "-nqs") != "" || after == "" || len(words[0]) < 2 {
			return "", false, fmt.Errorf("%q is no option of cron, and no command", clipText(words[0], 40))
		}
		single = single || strings.Contains(words[0], "s")
		command = after
	}
	return command, single, nil
}

// runScript returns the script without a trailing &, and notes how its run differs from cron.
func (t *crontabReader) runScript(s shellScript, note func(string)) string {
	text, ended := s.inForeground()
	switch {
	case ended:
		note("the & at the end is left out: a run takes as long as its program, and what goes on in the background " +
			"is ended with it")
	case (len(s.background) > 0 || leavesProcesses.MatchString(s.plain)) && !waitsForProcesses.MatchString(s.plain):
		note("what goes on in the background is ended with the run: keep it in the foreground, or end with wait")
	}
	if strings.HasSuffix(text, "\\") {
		note("cron knows no lines that go on below: the command ends with a backslash")
	}
	if _, known := t.env["HOME"]; !known {
		if homeOf.MatchString(s.plain) {
			note("HOME is the worker's --exec-home, and not the user's directory")
		}
		if relativePath.MatchString(s.plain) && !changesDir.MatchString(s.plain) {
			note("cron starts commands in the user's directory: here they start in /, or in the worker's --exec-dir")
		}
	}
	var unset []string
	for _, m := range userOf.FindAllStringSubmatch(s.plain, -1) {
		if _, known := t.env[m[1]]; !known && !slices.Contains(unset, m[1]) {
			unset = append(unset, m[1])
		}
	}
	if len(unset) > 0 {
		note(strings.Join(unset, ", ") + ": cron sets this, workers do not")
	}
	return text
}

// readProgram returns what a worker executes for a command.
func (t *crontabReader) readProgram(e *Entry, text string, note func(string)) (argv []string, exec *yamlMapping) {
	argv, ok := simpleCommand(text)
	shell := !ok || !posixShells[path.Base(t.shell)]
	if shell {
		argv = []string{t.shellPath(e, note), "-c", text}
		note("runs in a shell: workers need --exec-allow " + argv[0] + ", which allows every program")
	}
	env, exports := programVariables(t.env, shell && posixShells[path.Base(argv[0])], note)
	if _, known := t.env["HOME"]; known && strings.Contains(exports, "export HOME=") {
		exports += "cd \"$HOME\" || exit\n" // as cron does
	} else if known {
		note("cron starts the command in HOME: here it starts in /, or in the worker's --exec-dir")
	}
	if strings.Contains(exports, "export BASH_ENV=") && path.Base(argv[0]) == "bash" {
		exports += ". \"$BASH_ENV\"\n" // as bash does when it starts
	}
	if exports != "" {
		argv[2] = exports + text
	}
	if strings.Contains(strings.Join(argv, " "), secretReference) {
		e.turnOff("${secret: is allowed in variables and input only, and workers refuse this command", note)
	}
	exec = newMapping().setField("argv", argv)
	if env != nil {
		exec.setField("env", env)
	}
	return argv, exec
}

// shellPath is SHELL, completed where that is without doubt.
func (t *crontabReader) shellPath(e *Entry, note func(string)) string {
	switch {
	case t.shell == "":
		return "/bin/sh"
	case strings.HasPrefix(t.shell, "/") && path.Clean(t.shell) == t.shell:
		return t.shell
	case posixShells[t.shell]:
		note("SHELL " + clipText(t.shell, 40) + " is taken for /bin/" + t.shell)
		return "/bin/" + t.shell
	}
	e.turnOff(fmt.Sprintf("SHELL %q is no clean absolute path, which workers ask for", clipText(t.shell, 40)), note)
	return t.shell
}

// splitPercent splits a command at its first percent sign without a backslash. The rest is the program's input,
// in which further percent signs are line breaks.
func splitPercent(command string) (script, stdin string) {
	var out strings.Builder
	for i := 0; i < len(command); i++ {
		switch c := command[i]; {
		case c == '\\' && i+1 < len(command):
			i++
			if command[i] != '%' {
				out.WriteByte(c)
			}
			out.WriteByte(command[i])
		case c == '%':
			return out.String(), unescapeInput(command[i+1:])
		default:
			out.WriteByte(c)
		}
	}
	return out.String(), ""
}

func unescapeInput(text string) string {
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '\\' && i+1 < len(text) && text[i+1] == '%':
			i++
			out.WriteByte('%')
		case text[i] == '%':
			out.WriteByte('\n')
		default:
			out.WriteByte(text[i])
		}
	}
	if s := out.String(); !strings.HasSuffix(s, "\n") {
		return s + "\n"
	}
	return out.String()
}

// posixShells are shells that pass plain words on unchanged; "." means that no shell is set.
var posixShells = map[string]bool{".": true, "sh": true, "bash": true, "dash": true, "ash": true, "ksh": true,
	"zsh": true}

var (
	plainWordPattern = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)
	skippedWords     = regexp.MustCompile(`^(cd|test|\[|if|then|exec|nice|ionice|flock|timeout|env|sudo|` +
		`chronic|nohup|command|bash|sh|&&|;|-.*|\d+|/|.*=.*)$`)
)

// simpleCommand splits a command that needs no shell: an absolute program path and plain words.
func simpleCommand(script string) ([]string, bool) {
	words := strings.Fields(script)
	if len(words) == 0 || !strings.HasPrefix(words[0], "/") || strings.Contains(words[0], "=") {
		return nil, false
	}
	for _, w := range words {
		if !plainWordPattern.MatchString(w) {
			return nil, false
		}
	}
	clean, ok := cleanPath(words[0])
	words[0] = clean
	return words, ok
}

// commandName returns a name for a command.
func commandName(argv []string, script string) string {
	words := argv
	if len(argv) == 3 && argv[1] == "-c" {
		words = strings.Fields(script)
	}
	for i, w := range words {
		if i > 0 && words[i-1] == "cd" {
			continue
		}
		base := idSlug(strings.TrimSuffix(path.Base(strings.Trim(w, `"'();|&`)), ".sh"), 40)
		if base != "" && !skippedWords.MatchString(w) && !skippedWords.MatchString(base) {
			return base
		}
	}
	return "cron"
}

// shortHash distinguishes entries of the same program.
func shortHash(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:3])
}

func queueOf(user string) string {
	if s := idSlug(user, 32); s != "" {
		return s
	}
	return "nobody"
}

// clipText shortens a text at a boundary of characters.
func clipText(s string, most int) string {
	if len(s) <= most {
		return s
	}
	s = s[:most]
	for len(s) > 0 && !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s
}
