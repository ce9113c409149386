package importer

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

var variableReference = regexp.MustCompile(`\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)`)

// expansion has the referenced variables without a usable value.
type expansion struct {
	unknown      []string // named in the manifest, with a value from elsewhere
	maybeUnknown []string // of an envFrom, or not variables at all
	secrets      []string
}

// missingNames are the variables without a value.
func (p expansion) missingNames() []string { return slices.Concat(p.unknown, p.maybeUnknown) }

// expandVariables replaces $(NAME) by values. As in Kubernetes, unknown names stay. It stops if the values are
// too large for a payload: each may be made of many others.
func (c *cronJob) expandVariables(s string, env map[string]string) (string, expansion) {
	var p expansion
	c.room -= len(s)
	if c.room < 0 {
		return "", p
	}
	text := variableReference.ReplaceAllStringFunc(s, func(ref string) string {
		if ref == "$$" {
			return "$"
		}
		if c.room < 0 {
			return ""
		}
		name := ref[2 : len(ref)-1]
		value, ok := env[name]
		switch {
		case ok && strings.Contains(value, secretReference):
			p.secrets = append(p.secrets, name)
		case ok:
		case c.unknown[name] || serviceVariable.MatchString(name):
			p.unknown = append(p.unknown, name)
			return ref
		case c.unknown[anyVariable]:
			p.maybeUnknown = append(p.maybeUnknown, name)
			return ref
		default:
			return ref
		}
		c.room -= len(value) - len(ref)
		if c.room < 0 {
			return ""
		}
		return value
	})
	return text, p
}

// resolveArguments replaces $(NAME) in the arguments of a program. A missing value that the argument needs
// disables the job. script is the index of a shell script, which can read a secret as a variable.
func (c *cronJob) resolveArguments(argv []string, script int, env map[string]string) {
	for i := range argv {
		word := argv[i]
		if c.room < len(word) { // before a long script is analysed
			c.room = -1
			return
		}
		if i == script && script > 0 {
			word = c.readsSecrets(word, env)
		}
		text, p := c.expandVariables(word, env)
		perhaps := p.maybeUnknown
		if i == script && script > 0 {
			perhaps = nil
			for _, name := range p.maybeUnknown {
				if secretNamePattern.MatchString(name) {
					c.addNote(fmt.Sprintf("$(%s) stays as it is: it is a variable of envFrom, or a command",
						clipText(name, 64)), containersPath...)
				}
			}
		}
		switch missing := append(p.unknown, perhaps...); {
		case c.disabledReason != "":
		case len(missing) > 0:
			c.disabledReason = fmt.Sprintf("$(%s) stays as it is: the value of the variable is not in the "+
				"manifest, and has to be written in its place", clipText(missing[0], 64))
		case len(p.secrets) > 0:
			c.disabledReason = fmt.Sprintf("$(%s) is a secret, which is allowed in variables and input only: let "+
				"the program read the variable", clipText(p.secrets[0], 64))
		}
		if len(p.secrets) == 0 {
			argv[i] = text
		}
	}
}

// secretNamePattern is how names of variables are written, and of commands are not.
var secretNamePattern = regexp.MustCompile(`^[A-Z_][A-Z0-9_]*$`)

// readsSecrets replaces $(NAME) in a script by ${NAME} if it is a secret outside single quotes.
func (c *cronJob) readsSecrets(text string, env map[string]string) string {
	plain := readScript(text).plain
	var out strings.Builder
	end := 0
	for _, at := range variableReference.FindAllStringSubmatchIndex(text, -1) {
		if at[2] < 0 || plain[at[0]] != '$' || !strings.Contains(env[text[at[2]:at[3]]], secretReference) {
			continue
		}
		name := text[at[2]:at[3]]
		if !shellName.MatchString(name) {
			continue
		}
		out.WriteString(text[end:at[0]] + "$${" + name + "}")
		end = at[1]
		c.addNote(fmt.Sprintf("$(%s) became ${%s}: it is a secret, which the script reads as a variable",
			clipText(name, 64), clipText(name, 64)), containersPath...)
	}
	return out.String() + text[end:]
}

// scriptIndex returns the index of the script in a shell's arguments; 0: there is none.
func scriptIndex(argv []string) int {
	if len(argv) == 0 || argv[0] == "" || argv[0] == "." || !posixShells[path.Base(argv[0])] {
		return 0
	}
	isCommand := false
	for i := 1; i < len(argv); i++ {
		word := argv[i]
		option := len(word) > 1 && (word[0] == '-' || word[0] == '+')
		switch {
		case word == "--" && isCommand && i+1 < len(argv):
			return i + 1
		case word == "--":
			return 0
		case !option && isCommand:
			return i
		case !option:
			return 0
		case strings.HasPrefix(word, "--"):
			continue
		}
		isCommand = isCommand || word[0] == '-' && strings.Contains(word, "c")
		i += strings.Count(strings.ToLower(word), "o") // each -o has a value, such as pipefail
	}
	return 0
}
