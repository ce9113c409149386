package main

import (
	"context"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/cli/config"
	"github.com/fermata-io/fermata/internal/cli/zones"
	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

const (
	// completionTimeout bounds the calls for one completion: a shell waits for them at each TAB.
	completionTimeout = time.Second
	// maxCompletions is how many names of the cluster are offered at once.
	maxCompletions = 100
)

// completer returns the values that begin with a prefix, or values among which the shell selects.
type completer func(cmd *cobra.Command, prefix string) []string

func (c completer) complete(cmd *cobra.Command, prefix string) ([]string, cobra.ShellCompDirective) {
	var found []string
	for _, value := range c(cmd, prefix) {
		if strings.HasPrefix(strings.ToLower(value), strings.ToLower(prefix)) {
			found = append(found, value)
		}
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

// completeFlag sets the completion of a flag. For a flag with several values it completes the last one.
func completeFlag(cmd *cobra.Command, flag string, values completer) {
	f := cmd.Flags().Lookup(flag)
	if f == nil {
		f = cmd.PersistentFlags().Lookup(flag)
	}
	_, several := f.Value.(pflag.SliceValue)
	several = several && f.Value.Type() != "stringArray"
	_ = cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, text string) ([]string,
		cobra.ShellCompDirective) {
		before := ""
		if at := strings.LastIndexByte(text, ','); several && at >= 0 {
			before, text = text[:at+1], text[at+1:]
		}
		found, directive := values.complete(cmd, text)
		for i := range found {
			found[i] = before + found[i]
		}
		if several {
			directive |= cobra.ShellCompDirectiveNoSpace
		}
		return found, directive
	}) // the flag exists and has no other completion
}

func choices(values ...string) completer {
	return func(*cobra.Command, string) []string { return values }
}

// enumChoices are the values that enumValue accepts.
func enumChoices(values map[string]int32, prefix string) completer {
	var names []string
	for name, n := range values {
		if n != 0 {
			names = append(names, strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, prefix)), "_", "-"))
		}
	}
	slices.Sort(names)
	return choices(names...)
}

// registerCompletions completes the arguments and flags of all commands. A flag is known by its name, an argument by
// its name in the usage line. Values of the cluster are those of the namespace; without an answer in time there are
// none.
func (a *app) registerCompletions(root *cobra.Command) {
	jobs, queues := completer(a.completeJobs), completer(a.completeQueues)
	flags := map[string]completer{
		"queue": queues, "job": jobs, "preset": a.completePresets, "tz": func(_ *cobra.Command, prefix string) []string {
			return zones.WithPrefix(prefix)
		},
		"state":          choices("scheduled", "running", "paused", "dead", "done"),
		"kind":           choices(job.Kinds()...),
		"color":          choices("auto", "always", "never"),
		"retry-strategy": enumChoices(fermatav1.RetryPolicy_Strategy_value, "STRATEGY_"),
		"jitter":         enumChoices(fermatav1.Jitter_Kind_value, "KIND_"),
		"overlap":        enumChoices(fermatav1.OverlapPolicy_value, "OVERLAP_POLICY_"),
		"misfire":        enumChoices(fermatav1.MisfirePolicy_Policy_value, "POLICY_"),
		"dst-gap":        enumChoices(fermatav1.DstGap_value, "DST_GAP_"),
		"dst-repeat":     enumChoices(fermatav1.DstRepeat_value, "DST_REPEAT_"),
		"backoff":        enumChoices(fermatav1.RunJobRequest_Backoff_value, "BACKOFF_"),
		"order-by":       choices("id", "next_due_time", "consecutive_failures desc", "last_run_time desc"),
		"sort":           choices(slices.Sorted(maps.Keys(queueOrders))...),
		"existing":       choices(slices.Sorted(maps.Keys(existingActions))...),
	}
	for name, values := range map[string]completer{
		"output": choices("table", "json", "yaml", "name"), "namespace": a.completeNamespaces,
		"context": a.completeContexts, "oidc-token": choices("id", "access"),
	} {
		completeFlag(root, name, values)
	}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for name, values := range flags {
			if cmd.LocalNonPersistentFlags().Lookup(name) != nil {
				completeFlag(cmd, name, values)
			}
		}
		if columns := a.listColumns[cmd]; columns != nil {
			completeFlag(cmd, "columns", func(*cobra.Command, string) []string { return columns() })
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if !isPathFlag(f.Name) { // without effect on flags that have a completion
				_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.NoFileCompletions)
			}
		})
		if len(cmd.ValidArgs) == 0 {
			a.completeArguments(cmd)
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(root)
}

// isPathFlag reports whether a flag takes the path of a file or directory.
func isPathFlag(name string) bool {
	return strings.HasSuffix(name, "file") ||
		slices.Contains([]string{"config", "tls-ca", "tls-cert", "tls-key", "oidc-ca", "dir"}, name)
}

// completeArguments completes the arguments of a command by the names in its usage line. Commands with -f, which read
// files, complete files where they have no names.
func (a *app) completeArguments(cmd *cobra.Command) {
	byName := map[string]func(cmd *cobra.Command, args []string) completer{
		"ID":      func(*cobra.Command, []string) completer { return a.completeJobs },
		"JOB":     func(*cobra.Command, []string) completer { return a.completeJobs },
		"QUEUE":   func(*cobra.Command, []string) completer { return a.completeQueues },
		"RUN":     func(_ *cobra.Command, args []string) completer { return a.completeRuns(args) },
		"CONTEXT": func(*cobra.Command, []string) completer { return a.completeContexts },
		"SLOT":    func(*cobra.Command, []string) completer { return a.completeLetters },
	}
	names, repeated := argumentNames(cmd.Use)
	if cmd.Name() == "create" {
		names = nil // the id of a new job
	}
	if len(names) == 0 {
		if takesFiles(cmd) {
			return
		}
		cmd.ValidArgsFunction = cobra.NoFileCompletions
		return
	}
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		at := len(args)
		if repeated {
			at = min(at, len(names)-1)
		}
		if at >= len(names) || byName[names[at]] == nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		found, directive := byName[names[at]](cmd, args).complete(cmd, prefix)
		return slices.DeleteFunc(found, func(value string) bool { return slices.Contains(args, value) }), directive
	}
}

// takesFiles reports whether arguments of a command are files.
func takesFiles(cmd *cobra.Command) bool { return strings.Contains(cmd.Use, "FILE") }

// argumentNames returns the names of the arguments in the first line of a usage text, and whether the last one may be
// repeated: "runs ID [RUN]" has ID and RUN. JOB[/SLOT] is SLOT.
func argumentNames(use string) (names []string, repeated bool) {
	line, _, _ := strings.Cut(use, "\n")
	for _, word := range strings.Fields(line)[1:] {
		if strings.HasPrefix(strings.Trim(word, "[("), "-") || word == "|" {
			break
		}
		if strings.Contains(word, "JOB[/SLOT]") {
			return []string{"SLOT"}, true
		}
		if name := strings.Trim(word, "[]()."); name == strings.ToUpper(name) {
			names, repeated = append(names, name), strings.Contains(word, "...")
		}
	}
	return names, repeated
}

// askForCompletion calls the cluster for a completion. All errors are silent: the shell offers nothing then.
func (a *app) askForCompletion(cmd *cobra.Command,
	ask func(context.Context, *client.Client) ([]string, error)) []string {
	a.err, a.completing = io.Discard, true
	if config.LoadFlags(cmd.Root().PersistentFlags(), "FERMATA") != nil || a.normalizeAddresses() != nil {
		return nil
	}
	parent := cmd.Context()
	if parent == nil {
		parent = context.Background()
	}
	ctx, cancel := context.WithTimeout(parent, completionTimeout)
	defer cancel()
	a.timeout = completionTimeout
	var found []string
	err := a.withClient(ctx, func(c *client.Client) (err error) {
		found, err = ask(ctx, c)
		return err
	})
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(found, func(value string) bool { return !isPlainWord(value) })
}

// isPlainWord reports whether shells take a word as it is. The shell inserts what is offered into the command line
// without quotes. Valid names are plain words; what a cluster answers may be none.
func isPlainWord(value string) bool {
	const marks = "._:~/-#"
	for i := range len(value) {
		c := value[i]
		isAlphanumeric := c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
		if !isAlphanumeric && (strings.IndexByte(marks, c) < 0 || i == 0) {
			return false
		}
	}
	return value != ""
}

func (a *app) completeJobs(cmd *cobra.Command, prefix string) []string {
	return a.askForCompletion(cmd, func(ctx context.Context, c *client.Client) ([]string, error) {
		filter := client.Filter{Selection: client.Selection{IDPrefix: prefix}, PageSize: maxCompletions}
		var ids []string
		for j, err := range c.Jobs(ctx, filter) {
			if err != nil {
				return nil, err
			}
			ids = append(ids, client.JobID(j))
			if len(ids) == maxCompletions {
				break
			}
		}
		return ids, nil
	})
}

func (a *app) completeLetters(cmd *cobra.Command, prefix string) []string {
	return a.askForCompletion(cmd, func(ctx context.Context, c *client.Client) ([]string, error) {
		id, _, _ := strings.Cut(prefix, "/")
		var names []string
		for letter, err := range c.DeadLetters(ctx, client.Selection{IDPrefix: id}) {
			if err != nil {
				return nil, err
			}
			names = append(names, letterName(letter))
			if len(names) == maxCompletions {
				break
			}
		}
		return names, nil
	})
}

// completeRuns offers the runs of the job that the first argument names.
func (a *app) completeRuns(args []string) completer {
	return func(cmd *cobra.Command, _ string) []string {
		return a.askForCompletion(cmd, func(ctx context.Context, c *client.Client) ([]string, error) {
			runs, err := c.Runs(ctx, args[0])
			var ids []string
			for _, r := range runs[:min(len(runs), maxCompletions)] {
				ids = append(ids, client.RunID(r))
			}
			return ids, err
		})
	}
}

func (a *app) completeQueues(cmd *cobra.Command, prefix string) []string {
	return a.askForCompletion(cmd, func(ctx context.Context, c *client.Client) ([]string, error) {
		queues, err := queuesOf(ctx, c, false)
		var names []string
		for _, q := range queues {
			if strings.HasPrefix(q.GetQueue(), prefix) && len(names) < maxCompletions {
				names = append(names, q.GetQueue())
			}
		}
		return names, err
	})
}

func (a *app) completeNamespaces(cmd *cobra.Command, prefix string) []string {
	return a.askForCompletion(cmd, func(ctx context.Context, c *client.Client) ([]string, error) {
		namespaces, err := c.Admin().Namespaces(ctx)
		var names []string
		for _, n := range namespaces {
			name := strings.TrimPrefix(n.GetName(), "namespaces/")
			if strings.HasPrefix(name, prefix) && len(names) < maxCompletions {
				names = append(names, name)
			}
		}
		return names, err
	})
}

// completePresets offers the built-in presets, and those of the cluster.
func (a *app) completePresets(cmd *cobra.Command, _ string) []string {
	var names []string
	for _, p := range backoff.Presets() {
		names = append(names, p.Name)
	}
	return append(names, a.askForCompletion(cmd, func(ctx context.Context, c *client.Client) ([]string, error) {
		list, err := customPresets(ctx, c)
		var custom []string
		for _, p := range list {
			custom = append(custom, p.name)
		}
		return custom, err
	})...)
}

func (a *app) completeContexts(cmd *cobra.Command, _ string) []string {
	flags := cmd.Root().PersistentFlags()
	if config.LoadEnvironment(flags, "FERMATA") != nil {
		return nil
	}
	contexts, err := config.ReadContexts(flags)
	if err != nil {
		return nil
	}
	var names []string
	for _, c := range contexts {
		names = append(names, c.Name)
	}
	return names
}

// completesLine reports whether a shell calls the command for a completion.
func completesLine(args []string) bool {
	return len(args) > 0 && (args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd)
}
