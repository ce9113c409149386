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

// applyFlags are what apply and diff have in common.
type applyFlags struct {
	files []string
	owner string

	prune, allowEmpty, force bool

	color        string
	hidePayloads bool
}

func (o *applyFlags) registerFlags(f *pflag.FlagSet) {
	f.StringArrayVarP(&o.files, "file", "f", nil, "file, directory (with those below it), or - for standard input; may be repeated")
	f.StringVar(&o.owner, "owner", "", "whose jobs these are: kept as the label "+client.OwnerLabel)
	f.BoolVar(&o.prune, "prune", false, "delete jobs of the owner that the files do not have")
	f.BoolVar(&o.allowEmpty, "allow-empty", false, "files without a job are meant: with --prune all jobs of the owner go")
	f.BoolVar(&o.force, "force", false, "take over jobs of other owners")
	f.StringVar(&o.color, "color", "auto", "auto (on a terminal, unless NO_COLOR is set), always or never")
	f.BoolVar(&o.hidePayloads, "hide-payloads", false, "tell of payloads only how long they are")
}

func (o *applyFlags) checkFlags() error {
	switch {
	case len(o.files) == 0:
		return usageErrorf("say which files: -f FILE, -f DIRECTORY or -f -")
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
		Use: "apply -f FILE|DIR|- [--owner NAME] [--prune]", Short: "Make jobs what files say", Args: noArgs,
		Long: "Make the jobs of a namespace what files say: those that are missing are created, those that differ replaced,\n" +
			"those that are the same left alone with all that is known of them. Everything is checked before anything is\n" +
			"done, and each fault told with its line. What is done is shown field by field; --dry-run only shows it.\n" +
			"A job is changed only if it is still what was compared: one that somebody edits meanwhile is left to them, and\n" +
			"said (exit code 4). The command may be repeated at any time.\n\n" +
			"With --owner jobs belong to this set of files: a job of another owner is refused without --force, and --prune\n" +
			"deletes jobs of the owner that the files no longer have. A one-time job whose time has passed is not made again.\n" +
			"Limits of queues in the files need a role that may set them, and stay when they leave the files.\n\n" + fileHelp + applyHelp,
		Example: "  fermata apply -f jobs/ --owner billing --prune\n  fermata apply -f jobs.yaml --dry-run\n" +
			"  fermata export --label team=ops | fermata --address other:7070 apply -f -",
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := a.applyFiles(cmd, &flags, dry)
			return err
		},
	}
	flags.registerFlags(cmd.Flags())
	cmd.Flags().BoolVar(&dry, "dry-run", false, "show what would be done, and do nothing")
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
		Long: "Show what fermata apply with the same flags would do, field by field, and do nothing. It needs no more than\n" +
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
	cmd.Flags().BoolVar(&exit, "exit-code", false, "exit with 6 when there is something to do")
	return cmd
}

// applyFiles shows what there is to do, and does it. pending tells whether there was
// something.
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
func (a *app) readFiles(flags *applyFlags) (*manifest.Set, error) {
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
		return nil, usageErrorf("the files hold no job: all jobs of owner %s would be deleted; say --allow-empty if that is meant", flags.owner)
	case len(set.Queues) == 0:
		return nil, usageErrorf("the files hold no job")
	}
	return set, nil
}

// assignOwner gives a job its owner, and takes away what does not belong to a definition.
func assignOwner(j *manifest.Job, owner string) (faults manifest.Faults) {
	if j.ID == "" {
		faults = append(faults, j.Locate("id", "is missing: a job that is applied again and again needs one"))
	}
	labels := j.Job.GetLabels()
	given, ok := labels[client.OwnerLabel]
	switch {
	case owner == "":
	case ok && given != owner:
		faults = append(faults, j.Locate(fmt.Sprintf("labels[%q]", client.OwnerLabel), fmt.Sprintf("is %q, but --owner is %q", given, owner)))
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
