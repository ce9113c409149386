package importer

import (
	"regexp"
	"strings"
)

// shellScript is the result of a static analysis of a shell script.
type shellScript struct {
	text string
	// plain is the text with quotations and comments blanked out.
	plain string
	// background is where commands are put in the background, by an ampersand.
	background []int
	// unterminated: a quotation or a substitution has no end.
	unterminated bool
}

// readScript reads quotations, substitutions, comments and ampersands.
func readScript(text string) shellScript {
	plain := []byte(text)
	blank := func(from, to int) {
		for i := from; i < min(to, len(plain)); i++ {
			plain[i] = ' '
		}
	}
	s := shellScript{text: text}
	var open []byte // what is open, the innermost last: " ` (
	inside := func() byte {
		if len(open) == 0 {
			return 0
		}
		return open[len(open)-1]
	}
	toggle := func(c byte) {
		if inside() == c {
			open = open[:len(open)-1]
		} else {
			open = append(open, c)
		}
	}
	for i := 0; i < len(text); i++ {
		switch c, quoted := text[i], inside() == '"'; {
		case c == '\\':
			blank(i, i+2)
			i++
		case c == '\'' && !quoted:
			end := strings.IndexByte(text[i+1:], '\'')
			if end < 0 {
				blank(i, len(text))
				return shellScript{text: text, plain: string(plain), background: s.background, unterminated: true}
			}
			if !embeddedVariable.MatchString(text[max(0, i-maxEmbeddedVariable):i]) {
				blank(i, i+end+2)
			}
			i += end + 1
		case c == '"' || c == '`':
			toggle(c)
		case c == '$' && byteAt(text, i+1) == '(':
			open = append(open, '(')
			i++
		case quoted && c == '~':
			blank(i, i+1)
		case quoted:
		case c == '(':
			open = append(open, c)
		case c == ')' && inside() == '(':
			open = open[:len(open)-1]
		case c == '#' && (i == 0 || strings.IndexByte(" \t\n;&|(", text[i-1]) >= 0):
			end := strings.IndexByte(text[i:]+"\n", '\n')
			blank(i, i+end)
			i += end
		case c == '&' && byteAt(text, i+1) == '&':
			i++
		case c == '&' && byteAt(text, i+1) != '>' && (i == 0 || strings.IndexByte("><|;", text[i-1]) < 0):
			s.background = append(s.background, i)
		}
	}
	s.plain, s.unterminated = string(plain), len(open) > 0
	return s
}

func byteAt(s string, i int) byte {
	if i < 0 || i >= len(s) {
		return 0
	}
	return s[i]
}

// inForeground takes off an ampersand at the end that is the only one.
func (s shellScript) inForeground() (string, bool) {
	if len(s.background) != 1 || s.unterminated || strings.Trim(s.plain[s.background[0]+1:], " \t;") != "" {
		return s.text, false
	}
	return strings.TrimRight(s.text[:s.background[0]], " \t"), true
}

var (
	leavesProcesses = regexp.MustCompile(`(^|[\s;|&(])(setsid|disown|daemonize|start-stop-daemon|` +
		`screen\s+-\S*d|tmux\s+new\S*\s+(-\S+\s+)*-d)`)
	waitsForProcesses = regexp.MustCompile(`(^|[\s;|&(])wait(\s|;|$)`)
	homeOf            = regexp.MustCompile(`(^|[\s=:;|&(<>])~(/|\s|$)|\$\{?HOME\b`)
	userOf            = regexp.MustCompile(`\$\{?(USER|LOGNAME|SHELL|MAILTO)\b`)
	// A program, a script of an interpreter or a file of a redirection in the directory that
	// a command starts in.
	relativePath = regexp.MustCompile(`(^|[\s;|&(<>])\.{1,2}/|` +
		`(^|[;|&(])\s*((nohup|sudo|nice|php\S*|python\S*|perl|ruby|node|bash|sh)\s+)*\w[\w.-]*/|` +
		`[<>]\s*\w|(^|[\s;|&(])pwd\b|\$\{?PWD\b`)
	changesDir = regexp.MustCompile(`(^|[;&|({])\s*cd\s`)
	// embeddedVariable is what precedes a script in quotes.
	embeddedVariable = regexp.MustCompile(`\s-[a-z]*c\s+$`)
	shellName        = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// maxEmbeddedVariable is how far back of a quotation embeddedVariable is looked for.
const maxEmbeddedVariable = 64

// quoteShell quotes a text as one shell word.
func quoteShell(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
