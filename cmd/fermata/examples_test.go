package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestEveryCommandHasAnExample, whose commands and flags exist.
func TestEveryCommandHasAnExample(t *testing.T) {
	used := map[string]bool{}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		path := cmd.CommandPath()
		if strings.TrimSpace(cmd.Example) == "" {
			t.Errorf("%s has no example", path)
		}
		used[path] = cmd.Example == examples[path]
		for line := range strings.SplitSeq(strings.TrimSpace(cmd.Example), "\n") {
			if !strings.Contains(line, "fermata") {
				t.Errorf("%s: %q calls no command", path, line)
			}
			checkExample(t, line)
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk((&app{}).rootCommand())
	for path := range examples {
		if !used[path] {
			t.Errorf("the example of %s is not used: there is no such command, or it has one of its own", path)
		}
	}
}

// checkExample parses each call of fermata in a line of a shell.
func checkExample(t *testing.T, line string) {
	t.Helper()
	words := shellWords(line)
	for i, word := range words {
		if word != "fermata" || i > 0 && !slices.Contains([]string{"|", ";", "&&", "xargs", "-n1"}, words[i-1]) {
			continue // an argument
		}
		end := i + 1
		for end < len(words) && !slices.Contains([]string{"|", ";", ">", ">>", "&&"}, words[end]) {
			end++
		}
		root := (&app{}).rootCommand()
		cmd, args, err := root.Find(words[i+1 : end])
		if err == nil {
			err = cmd.ParseFlags(args)
		}
		if err == nil && cmd.Args != nil && !strings.Contains(line, "xargs") {
			err = cmd.Args(cmd, cmd.Flags().Args())
		}
		if err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// shellWords splits a line at blanks that are not in quotes.
func shellWords(line string) (words []string) {
	var word strings.Builder
	quote, inWord := rune(0), false
	for _, r := range line + " " {
		switch {
		case quote == 0 && (r == '\'' || r == '"'):
			quote, inWord = r, true
		case r == quote:
			quote = 0
		case quote == 0 && r == ' ':
			if inWord {
				words = append(words, strings.TrimSuffix(word.String(), ";"))
				word.Reset()
			}
			inWord = false
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	return words
}
