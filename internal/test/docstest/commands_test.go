package docstest_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDocumentedCommandsExist: the commands of fermata that documents show are in docs/reference/cli.md. The list of
// changes also names commands of earlier builds.
func TestDocumentedCommandsExist(t *testing.T) {
	reference := readFile(t, root+"/docs/reference/cli.md")
	commands := commandsOf(reference)
	if len(commands) < 20 {
		t.Fatalf("%d first words of commands: are they still found?", len(commands))
	}
	for _, file := range documentsOf(t) {
		if strings.HasSuffix(file, "/CHANGELOG.md") {
			continue
		}
		for _, command := range unknownCommands(readFile(t, file), commands) {
			t.Errorf("%s: there is no command %q", strings.TrimPrefix(file, root+"/"), command)
		}
	}
}

func TestUnknownCommandsAreFound(t *testing.T) {
	commands := commandsOf("## fermata jobs list\n## fermata jobs get\n## fermata late\n## fermata audit\n## fermata audit verify\n")
	for text, want := range map[string][]string{
		"`fermata jobs list`, `fermata late JOB` and `fermata audit of`": nil,
		"`fermata jobs` has several":                                     nil,
		"$ fermata --address 127.0.0.1:7071 jobs get x":                  nil,
		"$ fermata --namespace=a late":                                   nil,
		"the fermata explain of others":                                  nil,
		"`fermata explain` says why":                                     {"explain"},
		"`fermata jobs\nexplain`":                                        {"jobs explain"},
		"bin/fermata -n a jobs lists":                                    {"jobs lists"},
	} {
		if got := unknownCommands(text, commands); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

var (
	commandHeading = regexp.MustCompile(`(?m)^## fermata ([a-z -]+)$`)
	// shownCommand is a command in a code span, after a prompt or by its path, with flags before it.
	shownCommand = regexp.MustCompile("(?:`|\\$ |bin/)fermata(?: --?[a-z-]+[ =][\\w./:,-]+)*((?:\\s[a-z][a-z-]*)+)")
)

// commandsOf returns the commands of the reference: for each group the names in it, and none for a command that has
// no further ones.
func commandsOf(reference string) map[string][]string {
	commands := map[string][]string{}
	for _, match := range commandHeading.FindAllStringSubmatch(reference, -1) {
		group, name, _ := strings.Cut(match[1], " ")
		name, _, _ = strings.Cut(name, " ")
		commands[group] = append(commands[group], name)
	}
	return commands
}

// unknownCommands returns the commands of a text that do not exist.
func unknownCommands(text string, commands map[string][]string) (unknown []string) {
	for _, match := range shownCommand.FindAllStringSubmatch(text, -1) {
		words := strings.Fields(match[1])
		names, known := commands[words[0]]
		switch {
		case !known && words[0] != "completion":
			unknown = append(unknown, words[0])
		case len(words) > 1 && len(names) > 0 && !slices.Contains(names, "") && !slices.Contains(names, words[1]):
			unknown = append(unknown, words[0]+" "+words[1])
		}
	}
	return unknown
}
