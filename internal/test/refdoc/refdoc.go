// Package refdoc renders the commands of this module as pages of docs/reference, and
// compares the pages with what is there.
package refdoc

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var rewrite = flag.Bool("update-reference", false, "rewrite the pages of docs/reference")

// CheckPage fails the test unless page, a file of docs/reference, has this content.
// With -update-reference it writes the page.
func CheckPage(t *testing.T, page, want string) {
	t.Helper()
	path := filepath.Join("..", "..", "docs", "reference", page)
	if *rewrite {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != want {
		t.Errorf("docs/reference/%s is not current: run 'make reference'", page)
	}
}

// RenderSettings lists the flags of a command that also reads them from the environment
// and from a file, and those of the commands below it. envNames returns the variables of a flag.
func RenderSettings(intro string, envNames func(*pflag.Flag) []string, root *cobra.Command) string {
	var b strings.Builder
	b.WriteString(intro)
	writeSettings(&b, envNames, root.Flags())
	visitRunnable(root, func(c *cobra.Command) {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n```\n%s\n```\n", c.CommandPath(), escapeText(describe(c)), c.UseLine())
		if hasOwnFlags(c) {
			b.WriteString("\n")
			writeSettings(&b, envNames, c.LocalFlags())
		}
	})
	return b.String()
}

func writeSettings(b *strings.Builder, envNames func(*pflag.Flag) []string, flags *pflag.FlagSet) {
	b.WriteString("| flag | environment | type | default | meaning |\n| --- | --- | --- | --- | --- |\n")
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		env := "`" + strings.Join(envNames(f), "`, `") + "`"
		fmt.Fprintf(b, "| `--%s` | %s | %s | %s | %s |\n", f.Name, env, typeOf(f), defaultOf(f), cell(f.Usage))
	})
}

func writeFlags(b *strings.Builder, flags *pflag.FlagSet) {
	b.WriteString("| flag | type | default | meaning |\n| --- | --- | --- | --- |\n")
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		name := "`--" + f.Name + "`"
		if f.Shorthand != "" {
			name = "`-" + f.Shorthand + "`, " + name
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", name, typeOf(f), defaultOf(f), cell(f.Usage))
	})
}

// RenderCommands lists a command and all those below it, with their flags.
func RenderCommands(intro string, root *cobra.Command) string {
	var b strings.Builder
	b.WriteString(intro)
	b.WriteString("## Flags of all commands\n\n")
	writeFlags(&b, root.PersistentFlags())
	b.WriteString("\n## Commands\n\n| command | what it does |\n| --- | --- |\n")
	visitRunnable(root, func(c *cobra.Command) {
		fmt.Fprintf(&b, "| [%s](#%s) | %s |\n", c.CommandPath(), anchorOf(c), cell(c.Short))
	})
	visitRunnable(root, func(c *cobra.Command) { writeCommand(&b, c) })
	return b.String()
}

// visitRunnable calls visit for each command that does something, in the order of the help: those without commands
// below them, and those with flags of their own, such as fermata audit.
func visitRunnable(c *cobra.Command, visit func(*cobra.Command)) {
	for _, sub := range c.Commands() {
		if sub.Hidden || sub.Name() == "help" || sub.Name() == "completion" {
			continue
		}
		if sub.Runnable() && (!sub.HasSubCommands() || hasOwnFlags(sub)) {
			visit(sub)
		}
		visitRunnable(sub, visit)
	}
}

func writeCommand(b *strings.Builder, c *cobra.Command) {
	fmt.Fprintf(b, "\n## %s\n\n%s\n\n```\n%s\n```\n", c.CommandPath(), escapeText(describe(c)), c.UseLine())
	if c.Example != "" {
		fmt.Fprintf(b, "\n```sh\n%s\n```\n", dedent(c.Example))
	}
	if c.HasAvailableLocalFlags() && hasOwnFlags(c) {
		b.WriteString("\n")
		writeFlags(b, c.LocalFlags())
	}
}

func hasOwnFlags(c *cobra.Command) bool {
	own := false
	c.LocalFlags().VisitAll(func(f *pflag.Flag) { own = own || f.Name != "help" && !f.Hidden })
	return own
}

func describe(c *cobra.Command) string {
	if c.Long != "" {
		return strings.TrimSpace(c.Long)
	}
	return c.Short + "."
}

func anchorOf(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// typeOf names the values that a flag takes.
func typeOf(f *pflag.Flag) string {
	name, _ := pflag.UnquoteUsage(f)
	if name == "" {
		return f.Value.Type()
	}
	return name
}

// defaultOf is the default as it is written on a command line.
func defaultOf(f *pflag.Flag) string {
	switch f.DefValue {
	case "", "[]", "0s", "<nil>":
		return ""
	}
	return "`" + f.DefValue + "`"
}

// cell makes text fit into one cell of a table.
func cell(text string) string {
	return strings.ReplaceAll(escapeText(strings.Join(strings.Fields(text), " ")), "|", `\|`)
}

// escapeText keeps a renderer from taking placeholders such as <file> for HTML.
func escapeText(text string) string {
	return strings.NewReplacer("<", `\<`, "*", `\*`, "_", `\_`).Replace(text)
}

func dedent(text string) string {
	lines := strings.Split(strings.Trim(text, "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], "  ")
	}
	return strings.Join(lines, "\n")
}
