package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fermata-io/fermata/internal/cli/config"
)

// notInContexts are the global flags that fermata config set-context does not store.
var notInContexts = []string{"config", "context", "output", "no-headers", "help", "version"}

// pathFlags are the flags whose values in a context are absolute paths.
var pathFlags = []string{"token-file", "tls-ca", "tls-cert", "tls-key", "oidc-client-secret-file", "oidc-ca"}

func (a *app) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "config", Short: "Keep the settings of several clusters in contexts", Args: noArgs,
		Long: "Keep the settings of several clusters in contexts: named sets of values for global flags, in the file " +
			"that --config\n" +
			"names, or in your own, fermata/config.yaml in the directory of your settings. One context is current; " +
			"--context or\n" +
			"FERMATA_CONTEXT selects another one. A value of the command line comes first, then that of the " +
			"environment, of the\n" +
			"context, of the rest of the file. Only you may read or write the file (mode 0600). It names files with " +
			"secrets, and\n" +
			"contains none.",
		Example: `  fermata config set-context production --address node.example.com --tls --namespace billing
  fermata config use-context production
  fermata --context staging jobs list`,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return a.completeConfigFlags(cmd) },
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.setContextCommand(), a.useContextCommand(), a.currentContextCommand(), a.getContextsCommand(),
		a.deleteContextCommand(), a.viewConfigCommand())
	return cmd
}

// completeConfigFlags fills the global flags from the environment alone: the commands that repair a file do not depend
// on its content.
func (a *app) completeConfigFlags(cmd *cobra.Command) error {
	flags := cmd.Root().PersistentFlags()
	a.givenFlags = map[string]bool{}
	flags.VisitAll(func(f *pflag.Flag) { a.givenFlags[f.Name] = f.Changed })
	if err := config.LoadEnvironment(flags, "FERMATA"); err != nil {
		return newUsageError(err)
	}
	return a.checkFlags(cmd)
}

// configPath returns the path of the file with the contexts.
func configPath(cmd *cobra.Command) (string, error) {
	path, _, err := config.FilePath(cmd.Root().PersistentFlags())
	if err == nil && path == "" {
		err = fmt.Errorf("there is no home directory for a configuration file; name one by --config")
	}
	if err != nil {
		return "", newUsageError(err)
	}
	return path, nil
}

// editContexts changes the file with the contexts.
func (a *app) editContexts(cmd *cobra.Command, edit func(*config.ContextFile) error) error {
	path, err := configPath(cmd)
	if err != nil {
		return err
	}
	return asUsageError(config.EditContexts(cmd.Context(), path, edit))
}

// asUsageError makes an error a usage error.
func asUsageError(err error) error {
	if err == nil {
		return nil
	}
	return newUsageError(err)
}

func (a *app) setContextCommand() *cobra.Command {
	var current bool
	var unset []string
	cmd := &cobra.Command{
		Use: "set-context (NAME | --current) [global flags]", Short: "Create a context, or change its settings",
		Long: "Create a context from the global flags of the command line, or change these settings of an existing " +
			"one. Relative\n" +
			"paths of files are stored as absolute ones. --unset removes settings.",
		Example: `  fermata config set-context production --address node.example.com --tls --token-file ~/.fermata-token
  fermata config set-context --current --namespace billing
  fermata config set-context production --unset token-file`,
		Args: rangeArgs(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if current == (len(args) == 1) {
				return usageErrorf("give the name of a context, or --current\nusage: %s", cmd.UseLine())
			}
			set, err := a.flagsToStore(cmd)
			if err != nil {
				return err
			}
			if len(set)+len(unset) == 0 {
				return usageErrorf("nothing to set: give at least one global flag, such as --address, or --unset")
			}
			return a.setContext(cmd, args, set, unset)
		},
	}
	cmd.Flags().BoolVar(&current, "current", false, "change the current context")
	cmd.Flags().StringSliceVar(&unset, "unset", nil, "remove these settings, such as namespace")
	return cmd
}

// flagsToStore returns the global flags that the command line sets.
func (a *app) flagsToStore(cmd *cobra.Command) ([]*pflag.Flag, error) {
	var set []*pflag.Flag
	var err error
	cmd.Root().PersistentFlags().VisitAll(func(f *pflag.Flag) {
		if !a.givenFlags[f.Name] || slices.Contains(notInContexts, f.Name) {
			return
		}
		if slices.Contains(pathFlags, f.Name) && f.Value.String() != "" {
			path, absErr := filepath.Abs(f.Value.String())
			if absErr == nil {
				absErr = f.Value.Set(path)
			}
			if absErr != nil {
				err = absErr
			}
		}
		set = append(set, f)
	})
	return set, err
}

// setContext changes the context that args names, or the current one.
func (a *app) setContext(cmd *cobra.Command, args []string, set []*pflag.Flag, unset []string) error {
	name, verb, inUse := "", "changed", ""
	err := a.editContexts(cmd, func(f *config.ContextFile) error {
		name = f.Current()
		if len(args) == 1 {
			name = args[0]
		}
		if name == "" {
			return fmt.Errorf("there is no current context: give a name")
		}
		if !f.Has(name) {
			verb = "created"
		}
		inUse = f.Current()
		return f.Set(name, set, unset)
	})
	if err != nil {
		return err
	}
	if inUse != name {
		fmt.Fprintf(a.err, "hint: use it with: fermata config use-context %s, or for one command with --context %s\n",
			name, name)
	}
	return a.printResult(verb+" context "+name, resultFact{"context", name}, resultFact{verb, true})
}

func (a *app) useContextCommand() *cobra.Command {
	return &cobra.Command{
		Use: "use-context CONTEXT", Short: "Make a context the current one", Args: exactArgs(1),
		Example: "  fermata config use-context production",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.editContexts(cmd, func(f *config.ContextFile) error { return f.Use(args[0]) }); err != nil {
				return err
			}
			if err := a.warnOverriding(cmd, args[0]); err != nil {
				return err
			}
			return a.printResult("the current context is "+args[0], resultFact{"context", args[0]})
		},
	}
}

// warnOverriding warns of variables of the environment that take the place of a context's settings.
func (a *app) warnOverriding(cmd *cobra.Command, name string) error {
	contexts, err := readContexts(cmd)
	if err != nil {
		return err
	}
	for _, c := range contexts {
		for _, s := range c.Settings {
			f := cmd.Root().PersistentFlags().Lookup(s.Flag)
			if c.Name != name || f == nil {
				continue
			}
			if variable, ok := strings.CutPrefix(config.SourceOf(f), "environment variable "); ok {
				fmt.Fprintf(a.err, "warning: %s is set and takes the place of %s of the context\n", variable, s.Flag)
			}
		}
	}
	return nil
}

// warnOverridden is warnOverriding for a context that the command line names.
func (a *app) warnOverridden(flags *pflag.FlagSet) {
	if f := flags.Lookup("context"); config.SourceOf(f) != "flag" {
		return
	}
	for _, name := range config.OverriddenByEnvironment(flags) {
		fmt.Fprintf(a.err, "warning: %s is set and takes the place of %s of the context\n",
			config.EnvName("FERMATA", name), name)
	}
}

func readContexts(cmd *cobra.Command) ([]config.Context, error) {
	contexts, err := config.ReadContexts(cmd.Root().PersistentFlags())
	return contexts, asUsageError(err)
}

func (a *app) currentContextCommand() *cobra.Command {
	return &cobra.Command{
		Use: "current-context", Short: "Print the name of the current context", Args: noArgs,
		Example: "  fermata config current-context",
		RunE: func(cmd *cobra.Command, _ []string) error {
			contexts, err := readContexts(cmd)
			if err != nil {
				return err
			}
			for _, c := range contexts {
				if c.Current {
					return a.printResult(c.Name, resultFact{"context", c.Name})
				}
			}
			return &codedError{fmt.Errorf("there is no current context"), exitNotFound,
				"choose one by: fermata config use-context"}
		},
	}
}

func (a *app) deleteContextCommand() *cobra.Command {
	return &cobra.Command{
		Use: "delete-context CONTEXT", Short: "Delete a context", Args: exactArgs(1),
		Example: "  fermata config delete-context staging",
		RunE: func(cmd *cobra.Command, args []string) error {
			wasCurrent := false
			if err := a.editContexts(cmd, func(f *config.ContextFile) error {
				wasCurrent = f.Current() == args[0]
				return f.Delete(args[0])
			}); err != nil {
				return err
			}
			if wasCurrent {
				fmt.Fprintln(a.err, "warning: it was the current context; choose another one by: fermata config use-context")
			}
			return a.printResult("deleted context "+args[0], resultFact{"context", args[0]}, resultFact{"deleted", true})
		},
	}
}

// shownContext is a context in a list.
type shownContext struct{ config.Context }

func (c shownContext) itemName() string { return c.Name }

func (c shownContext) itemText() (string, error) {
	settings := map[string]any{}
	for _, s := range c.Settings {
		settings[s.Flag] = s.Values
		if len(s.Values) == 1 {
			settings[s.Flag] = s.Values[0]
		}
	}
	text, err := json.MarshalIndent(map[string]any{"name": c.Name, "current": c.Current, "settings": settings}, "", "  ")
	return string(text), err
}

func (c shownContext) cell(flag string) string { return fullText(strings.Join(c.Value(flag), ",")) }

func (a *app) getContextsCommand() *cobra.Command {
	return registerList(a, &cobra.Command{
		Use: "get-contexts", Short: "List the contexts", Args: noArgs, Aliases: []string{"list-contexts"},
		Example: "  fermata config get-contexts\n  fermata config get-contexts -o name",
		RunE: func(cmd *cobra.Command, _ []string) error {
			contexts, err := readContexts(cmd)
			if err != nil {
				return err
			}
			list := make([]shownContext, len(contexts))
			for i, c := range contexts {
				list[i] = shownContext{c}
			}
			return printList(a, list, contextTable)
		},
	}, contextTable)
}

func contextTable(contexts []shownContext) outputTable {
	t := outputTable{heading: []string{"NAME", "CURRENT", "ADDRESS", "NAMESPACE", "TLS", "TOKEN FILE"},
		empty:          "no contexts; create one by: fermata config set-context NAME --address HOST:7070",
		leadingColumns: []string{"TOKEN FILE", "TLS", "NAMESPACE"}}
	for _, c := range contexts {
		current := noValue
		if c.Current {
			current = "*"
		}
		tls := c.cell("tls")
		if tls == noValue && (c.Value("tls-ca") != nil || c.Value("tls-cert") != nil || c.Value("tls-server-name") != nil) {
			tls = "true"
		}
		t.addRow(nameText(c.Name), current, c.cell("address"), c.cell("namespace"), tls, c.cell("token-file"))
	}
	return t
}

// shownSetting is a global flag in a list.
type shownSetting struct{ name, value, source string }

func (s shownSetting) itemName() string { return s.name }

func (s shownSetting) itemText() (string, error) {
	text, err := json.MarshalIndent(map[string]any{"name": s.name, "value": s.value, "source": s.source}, "", "  ")
	return string(text), err
}

func (a *app) viewConfigCommand() *cobra.Command {
	return registerList(a, &cobra.Command{
		Use: "view", Short: "Show the settings that commands use, and where each comes from", Args: noArgs,
		Long: "Show the value of each global flag that is in force, and its source: the command line, a variable of the\n" +
			"environment, the context, the file, or the default.",
		Example:           "  fermata config view\n  fermata --context staging config view -o json",
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return a.completeFlags(cmd) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list []shownSetting
			cmd.Root().PersistentFlags().VisitAll(func(f *pflag.Flag) {
				if f.Name != "help" {
					list = append(list, shownSetting{f.Name, settingText(f), config.SourceOf(f)})
				}
			})
			path, isDefault, err := config.FilePath(cmd.Root().PersistentFlags())
			if err == nil && isDefault {
				at := slices.IndexFunc(list, func(s shownSetting) bool { return s.name == "config" })
				list[at].value = path
			}
			return printList(a, list, settingTable)
		},
	}, settingTable)
}

// settingText is the value of a flag, with commas between several.
func settingText(f *pflag.Flag) string {
	if list, ok := f.Value.(pflag.SliceValue); ok {
		return strings.Join(list.GetSlice(), ",")
	}
	return f.Value.String()
}

func settingTable(list []shownSetting) outputTable {
	t := outputTable{heading: []string{"SETTING", "SOURCE", "VALUE"}, leadingColumns: []string{"SOURCE"}}
	for _, s := range list {
		t.addRow(s.name, printableText(s.source), fullText(s.value))
	}
	return t
}
