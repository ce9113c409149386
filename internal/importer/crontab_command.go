package importer

import (
	"crypto/sha256"
	"encoding/hex"
	"path"
	"regexp"
	"strings"
	"unicode/utf8"
)

// job makes the job of an entry.
func (t *crontab) job(rule *mapping, times, command, user string, note func(string)) (*mapping, string) {
	script, stdin := percent(command)
	argv, ok := simple(script)
	if !ok || !posix[path.Base(t.shell)] {
		shell := t.shell
		if shell == "" {
			shell = "/bin/sh"
		}
		argv = []string{shell, "-c", script}
		note("runs in a shell: workers need --exec-allow " + shell + ", which allows every program")
	}
	exec := newMapping().set("argv", argv)
	if env := programVariables(t.env, note); env != nil {
		exec.set("env", env)
	}
	if stdin != "" {
		exec.set("stdin", stdin)
	}
	if strings.Contains(stdin, "${secret:") {
		note("what begins with ${secret: in the input means a secret here")
	}
	id := t.o.Prefix + name(argv, script) + "-" + digest(times, command, user)
	m := newMapping().set("id", id)
	if queue := strings.ReplaceAll(t.o.Queue, "{user}", queueOf(user)); queue != "" {
		m.set("queue", queue)
	}
	if user != "" {
		m.set("labels", newMapping().set("crontab.user", user).flow())
		if !strings.Contains(t.o.Queue, "{user}") {
			note("ran as " + user + ": a program runs as the user of its worker, or of --exec-user; --queue 'cron-{user}' gives each user a queue")
		}
	}
	m.set("exec", exec).set("schedule", rule)
	if rule.node.Content[0].Value != "interval" {
		m.set("misfire_policy", newMapping().set("policy", "skip").flow())
	}
	m.set("overlap_policy", t.o.Overlap)
	return m.set("timeout", t.o.Timeout.String()), id
}

// percent splits a command at its first percent sign that no backslash precedes: what
// follows is the program's input, in which further ones are ends of lines.
func percent(command string) (script, stdin string) {
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
			return out.String(), input(command[i+1:])
		default:
			out.WriteByte(c)
		}
	}
	return out.String(), ""
}

func input(text string) string {
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

// posix are shells to which plain words mean what they are; "." is none given.
var posix = map[string]bool{".": true, "sh": true, "bash": true, "dash": true, "ash": true, "ksh": true, "zsh": true}

var (
	plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)
	filler    = regexp.MustCompile(`^(cd|test|\[|if|then|exec|nice|ionice|flock|timeout|env|sudo|chronic|nohup|command|bash|sh|&&|;|-.*|\d+|/|.*=.*)$`)
)

// simple splits a command that needs no shell: an absolute program and plain words.
func simple(script string) ([]string, bool) {
	words := strings.Fields(script)
	if len(words) == 0 || !strings.HasPrefix(words[0], "/") || strings.Contains(words[0], "=") {
		return nil, false
	}
	for _, w := range words {
		if !plainWord.MatchString(w) {
			return nil, false
		}
	}
	return words, true
}

// name finds what a command is best called.
func name(argv []string, script string) string {
	words := argv
	if len(argv) == 3 && argv[1] == "-c" {
		words = strings.Fields(script)
	}
	for i, w := range words {
		if i > 0 && words[i-1] == "cd" {
			continue
		}
		base := slug(strings.TrimSuffix(path.Base(strings.Trim(w, `"'();|&`)), ".sh"), 40)
		if base != "" && !filler.MatchString(w) && !filler.MatchString(base) {
			return base
		}
	}
	return "cron"
}

// digest tells entries of the same program apart.
func digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:3])
}

func queueOf(user string) string {
	if s := slug(user, 32); s != "" {
		return s
	}
	return "nobody"
}

// clip shortens a text at a boundary of characters.
func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	s = s[:most]
	for len(s) > 0 && !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s
}
