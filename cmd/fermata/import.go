package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fermata-io/fermata/internal/cli/config"
	"github.com/fermata-io/fermata/internal/cli/importer"
)

// importFlags are the common flags of imports from other schedulers.
type importFlags struct {
	zone   string
	queue  string
	prefix string
	strict bool
}

func (o *importFlags) registerFlags(cmd *cobra.Command, zone string) {
	f := cmd.Flags()
	f.StringVar(&o.zone, "tz", "", "IANA time zone of schedules without one (default "+zone+")")
	f.StringVar(&o.queue, "queue", "", "queue of the jobs (default the default queue)")
	f.StringVar(&o.prefix, "prefix", "", "what the ids of the jobs begin with")
	f.BoolVar(&o.strict, "strict", false, "exit with 1 if anything cannot be imported")
}

var idPrefix = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9._:~-]{0,19})?$`)

func (o *importFlags) checkFlags() error {
	if !idPrefix.MatchString(o.prefix) {
		return usageErrorf("--prefix %q: want up to 20 letters, digits and ._:~-, the first a letter or digit",
			clipText(o.prefix, 40))
	}
	if _, err := time.LoadLocation(o.zone); err != nil || o.zone == "" || o.zone == "Local" {
		return usageErrorf("--tz %q: want an IANA name such as Europe/Berlin", o.zone)
	}
	return nil
}

const foreignHelp = "Write a file for fermata apply to standard output. What cannot be imported is reported on " +
	"standard error, with its\n" +
	"line, and in a comment above the job. It exits with 1 if no job was made. Nothing is registered: review the " +
	"file,\n" +
	"then apply it:\n\n"

func (a *app) importCrontabCommand() *cobra.Command {
	var flags importFlags
	var system string
	o := importer.CrontabOptions{}
	cmd := &cobra.Command{
		Use: "crontab [FILE...]", Short: "Convert crontabs to jobs",
		Long: foreignHelp + "  crontab -l | fermata import crontab > jobs.yaml\n  fermata import crontab " +
			"/etc/crontab /etc/cron.d/* > jobs.yaml\n\n" +
			"A job runs as under cron: concurrently with an earlier run, not at all for missed times, and as\n" +
			"long as it takes, up to a day. Variables above an entry, CRON_TZ, RANDOM_DELAY, @daily and the like, " +
			"input after a\n" +
			"percent sign and random numbers (~) are supported. A command of plain words that begins with an " +
			"absolute path runs\n" +
			"without a shell. A job that could not run is written as a comment, with the reason.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if flags.zone == "" {
				flags.zone = localZone()
			}
			if err := flags.checkFlags(); err != nil {
				return err
			}
			if system != "auto" && system != "yes" && system != "no" {
				return usageErrorf("--user-column %q: want auto, yes or no", system)
			}
			if o.Timeout < time.Second || o.Timeout > 24*time.Hour {
				return usageErrorf("--timeout %v: want 1s to 24h", o.Timeout)
			}
			switch o.Overlap {
			case "allow_all", "skip", "buffer_one", "cancel_other":
			default:
				return usageErrorf("--overlap %q: want allow_all, skip, buffer_one or cancel_other", o.Overlap)
			}
			o.Zone, o.Queue, o.Prefix, o.Budget = flags.zone, flags.queue, flags.prefix, &importer.Budget{}
			return a.importFiles(args, flags.strict, func(file string, text []byte) (_ []importer.Entry, err error) {
				of := o
				of.System, err = hasUserColumn(system, file, text)
				if err != nil {
					return nil, err
				}
				return importer.Crontab(file, text, of)
			})
		},
	}
	flags.registerFlags(cmd, "that of this machine")
	cmd.Flags().StringVar(&system, "user-column", "auto",
		"whether the entries have a user column: yes, no, or auto (by the path, /etc/crontab or a cron.d, or else "+
			"by the text)")
	cmd.Flags().StringVar(&o.Overlap, "overlap", "allow_all",
		"what becomes of a time while a run is live: allow_all, as cron does, skip, buffer_one or cancel_other")
	config.DurationVar(cmd.Flags(), &o.Timeout, "timeout", 24*time.Hour, "longest time of a run")
	cmd.Flags().Lookup("queue").Usage = "queue of the jobs; {user} in it stands for the user of the column " +
		"(default the default queue)"
	return cmd
}

// hasUserColumn decides about the column of users by the flag, the path, and the text.
func hasUserColumn(flag, file string, text []byte) (bool, error) {
	if flag != "auto" {
		return flag == "yes", nil
	}
	if isSystemCrontab(file) {
		return true, nil
	}
	column, line, word := importer.DetectUserColumn(text)
	if column == importer.UnclearUserColumn {
		return false, usageErrorf("%s:%d: %s may be a user, or begin the command: set --user-column yes or no", file,
			line, printableText(word))
	}
	return column == importer.HasUserColumn, nil
}

func isSystemCrontab(file string) bool {
	dir, name := filepath.Split(filepath.Clean(file))
	return strings.HasSuffix(filepath.Clean(dir), "cron.d") || name == "crontab" && filepath.Clean(dir) == "/etc"
}

func (a *app) importCronJobCommand() *cobra.Command {
	var flags importFlags
	cmd := &cobra.Command{
		Use: "cronjob [FILE...]", Short: "Convert Kubernetes CronJobs to jobs",
		Long: foreignHelp + "  kubectl get cronjobs -o yaml | fermata import cronjob > jobs.yaml\n\n" +
			"Schedule, time zone, concurrencyPolicy, startingDeadlineSeconds, backoffLimit, activeDeadlineSeconds, " +
			"suspend and\n" +
			"the history limits become the job's policies; command, arguments and variables of the first container " +
			"a payload\n" +
			"of the handler exec. Programs come from the worker's image: the image that is named is not pulled.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if flags.zone == "" {
				flags.zone = "UTC"
			}
			if err := flags.checkFlags(); err != nil {
				return err
			}
			o := importer.CronJobOptions{Zone: flags.zone, Queue: flags.queue, Prefix: flags.prefix,
				Budget: &importer.Budget{}}
			return a.importFiles(args, flags.strict, func(file string, text []byte) ([]importer.Entry, error) {
				return importer.CronJobs(file, text, o)
			})
		},
	}
	flags.registerFlags(cmd, "UTC, that of most controllers")
	return cmd
}

// importFiles reads files, or standard input, and writes jobs.
func (a *app) importFiles(files []string, strict bool,
	read func(file string, text []byte) ([]importer.Entry, error)) error {
	if len(files) == 0 {
		files = []string{"-"}
	}
	var all []importer.Entry
	for _, file := range files {
		in := a.newInput(file)
		text, err := a.readInputFile(in)
		if err != nil {
			return err
		}
		if in.linked {
			// Entries and notes quote the content of the file.
			return usageErrorf("%s: a link leads to this file; give the file itself", file)
		}
		entries, err := read(file, text)
		if err != nil {
			return err
		}
		all = append(all, entries...)
	}
	jobs, notes := 0, 0
	var lost []string
	for i := range all {
		if all[i].HasJob() {
			jobs++
		} else if n := len(all[i].Notes); n > 0 {
			lost = append(lost, fmt.Sprintf("%s:%d", all[i].Notes[n-1].File, all[i].Notes[n-1].Line))
		}
		for _, n := range all[i].Notes {
			notes++
			fmt.Fprintln(a.err, "note:", printableText(n.String()))
		}
	}
	text, err := importer.Write("Jobs for fermata apply. Read the notes, and choose --owner.", all)
	if err != nil {
		return err
	}
	if _, err := a.out.Write(text); err != nil {
		return err
	}
	fmt.Fprintf(a.err, "%s, %s%s\n", countText(jobs, "job", "jobs"), countText(notes, "note", "notes"),
		notImportedText(lost))
	if jobs == 0 {
		return &codedError{err: errors.New("no job of the input could be imported"), code: exitFailed}
	}
	if strict && notes > 0 {
		return exitStatus(exitFailed)
	}
	return nil
}

// maxLinesShown is how many lines a summary names that were not imported.
const maxLinesShown = 20

// notImportedText is the part of a summary that lists the lines that were not imported; "" if all were.
func notImportedText(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	text := "; not imported: " + countText(len(lines), "line", "lines") + ": " +
		printableText(strings.Join(lines[:min(len(lines), maxLinesShown)], ", "))
	if more := len(lines) - maxLinesShown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// localZone is the name of this machine's time zone, as far as it can be found out.
func localZone() string {
	if name := os.Getenv("TZ"); name != "" {
		return strings.TrimPrefix(name, ":")
	}
	if target, err := os.Readlink("/etc/localtime"); err == nil {
		if _, name, ok := strings.Cut(target, "zoneinfo/"); ok {
			return name
		}
	}
	return "UTC"
}
