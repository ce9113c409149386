package main

import (
	"cmp"
	"context"
	"fmt"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/cli/manifest"
)

// applyFlags are the common flags of apply and diff.
type applyFlags struct {
	files []string
	owner string

	prune, allowEmpty, force bool

	color        string
	hidePayloads bool
}

func (o *applyFlags) registerFlags(f *pflag.FlagSet) {
	f.StringArrayVarP(&o.files, "file", "f", nil,
		"file, directory (with those below it), or - for standard input; may be repeated")
	f.StringVar(&o.owner, "owner", "", "whose jobs these are: kept as the label "+client.OwnerLabel)
	f.BoolVar(&o.prune, "prune", false, "delete jobs of the owner that are not in the files")
	f.BoolVar(&o.allowEmpty, "allow-empty", false,
		"allow files without a job: with --prune all jobs of the owner are deleted")
	f.BoolVar(&o.force, "force", false, "take over jobs of other owners")
	f.StringVar(&o.color, "color", "auto", "auto (on a terminal, unless NO_COLOR is set), always or never")
	f.BoolVar(&o.hidePayloads, "hide-payloads", false, "show only the size of payloads")
}

func (o *applyFlags) checkFlags() error {
	switch {
	case len(o.files) == 0:
		return usageErrorf("files are required: -f FILE, -f DIRECTORY or -f -")
	case o.prune && o.owner == "":
		return usageErrorf("--prune needs --owner: it deletes jobs of that owner only")
	case len(o.owner) > 128 || !isWord(o.owner):
		return usageErrorf("--owner %q: want up to 128 bytes of text without control characters", clipText(o.owner, 40))
	case o.color != "auto" && o.color != "always" && o.color != "never":
		return usageErrorf("--color %q: want auto, always or never", o.color)
	}
	return nil
}

func isWord(s string) bool {
	for _, r := range s {
		if r == unicode.ReplacementChar || unicode.IsControl(r) {
			return false
		}
	}
	return true
}

func (a *app) applyCommand() *cobra.Command {
	var flags applyFlags
	var dry bool
	cmd := &cobra.Command{
		Use: "apply -f FILE|DIR|- [--owner NAME] [--prune]", Short: "Create, update and delete jobs to match files",
		Args: noArgs,
		Long: "Create, update and delete the jobs of a namespace to match files. Missing jobs are created, and " +
			"jobs that\n" +
			"differ are replaced. Unchanged jobs keep their state. All files are validated before anything is " +
			"changed, and\n" +
			"each error is reported with its line. Changes are shown field by field; --dry-run only shows them.\n" +
			"A job is changed only if it is still the one that was compared. A job that is changed concurrently is " +
			"skipped and\n" +
			"reported (exit code 4). The command can be repeated at any time.\n\n" +
			"With --owner, jobs belong to this set of files: a job of another owner is refused without --force, " +
			"and --prune\n" +
			"deletes jobs of the owner that are no longer in the files. A one-time job in the past is not created " +
			"again.\n" +
			"Queue limits in the files need a role that may set them, and stay when they are removed from the " +
			"files.\n\n" + fileHelp + applyHelp,
		Example: "  fermata apply -f jobs/ --owner billing --prune\n  fermata apply -f jobs.yaml --dry-run\n" +
			"  fermata export --label team=ops | fermata --address other:7070 apply -f -",
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := a.applyFiles(cmd, &flags, dry)
			return err
		},
	}
	flags.registerFlags(cmd.Flags())
	cmd.Flags().BoolVar(&dry, "dry-run", false, "show the changes without making them")
	return cmd
}

const applyHelp = `

Besides, a job may have

  paused        true: hold the job; false: let it go on. Without it a pause stays

and a mapping of "jobs" may have limits of queues beside it:

  queues:
    mail: {max_concurrency: 20, rate: 100}
  jobs:
    ping: {http: {url: "https://example.com"}, schedule: {interval: {every: 30s}}}`

func (a *app) diffCommand() *cobra.Command {
	var flags applyFlags
	var exit bool
	cmd := &cobra.Command{
		Use: "diff -f FILE|DIR|- [--owner NAME] [--prune]", Short: "Show what apply would do", Args: noArgs,
		Long: "Show what fermata apply with the same flags would do, field by field, and do nothing. It needs no " +
			"more than\n" +
			"the right to read jobs. With --exit-code the exit code is 6 when there is something to do.",
		Example: "  fermata diff -f jobs/ --owner billing --prune --exit-code",
		RunE: func(cmd *cobra.Command, _ []string) error {
			pending, err := a.applyFiles(cmd, &flags, true)
			if err == nil && pending && exit {
				return exitStatus(exitPending)
			}
			return err
		},
	}
	flags.registerFlags(cmd.Flags())
	cmd.Flags().BoolVar(&exit, "exit-code", false, "exit with 6 if there are changes to make")
	return cmd
}

// applyFiles shows the changes and makes them. pending reports whether there were any.
func (a *app) applyFiles(cmd *cobra.Command, flags *applyFlags, dry bool) (pending bool, err error) {
	if err := flags.checkFlags(); err != nil {
		return false, err
	}
	set, err := a.readFiles(flags)
	if err != nil {
		return false, err
	}
	err = a.withSession(cmd, func(ctx context.Context, c *client.Client) error {
		p := applyPlanner{app: a, client: c, flags: flags, set: set}
		if err := p.planChanges(ctx); err != nil {
			return err
		}
		pending = p.hasChanges()
		if dry {
			return p.printChanges("plan")
		}
		return cmp.Or(p.printChanges(""), p.applyChanges(ctx))
	})
	return pending, err
}

// readFiles reads all files, and puts the owner's label on their jobs.
func (a *app) readFiles(flags *applyFlags) (*manifest.Content, error) {
	set, faults, err := a.readSet(flags.files)
	if err != nil {
		return nil, err
	}
	faults = append(faults, set.Check()...)
	for i := range set.Jobs {
		faults = append(faults, assignOwner(&set.Jobs[i], flags.owner)...)
	}
	switch {
	case len(faults) > 0:
		return nil, newUsageError(faults.Sorted())
	case len(set.Jobs) > 0 || flags.allowEmpty:
	case flags.prune:
		return nil, usageErrorf("the files contain no job: all jobs of owner %s would be deleted; add "+
			"--allow-empty to allow that", flags.owner)
	case len(set.Queues) == 0:
		return nil, usageErrorf("the files hold no job")
	}
	return set, nil
}

// assignOwner sets a job's owner and removes fields that are not part of a definition.
func assignOwner(j *manifest.Job, owner string) (faults manifest.FileErrors) {
	if j.ID == "" {
		faults = append(faults, j.Locate("id", "is missing: a job that is applied again and again needs one"))
	}
	labels := j.Job.GetLabels()
	given, ok := labels[client.OwnerLabel]
	switch {
	case owner == "":
	case ok && given != owner:
		faults = append(faults, j.Locate(fmt.Sprintf("labels[%q]", client.OwnerLabel),
			fmt.Sprintf("is %q, but --owner is %q", given, owner)))
	case !ok:
		if labels == nil {
			labels = map[string]string{}
		}
		labels[client.OwnerLabel] = owner
		j.Job.Labels = labels
	}
	j.Job.Etag = ""
	return faults
}
