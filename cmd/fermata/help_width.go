package main

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// maxHelpWidth is the width of help on wider terminals: longer lines are hard to read.
const maxHelpWidth = 100

// fitHelp fits the help of all commands to a terminal. Elsewhere the lines are as they are written.
func fitHelp(root *cobra.Command, width int) {
	width = min(width, maxHelpWidth)
	wrapped := fmt.Sprintf(".FlagUsagesWrapped %d |", width)
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages |", wrapped))
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		cmd.Long = wrapParagraphs(cmd.Long, width)
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(root)
}

// wrapParagraphs breaks the lines of paragraphs anew. Lines that begin with a blank stay as they are.
func wrapParagraphs(text string, width int) string {
	var lines []string
	var words []string
	flush := func() {
		lines = append(lines, wrapWords(words, width)...)
		words = nil
	}
	for line := range strings.SplitSeq(text, "\n") {
		if line == "" || strings.HasPrefix(line, " ") {
			flush()
			lines = append(lines, line)
			continue
		}
		words = append(words, strings.Fields(line)...)
	}
	flush()
	return strings.Join(lines, "\n")
}

func wrapWords(words []string, width int) (lines []string) {
	line := ""
	for _, word := range words {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}
