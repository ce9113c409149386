package suggest_test

import (
	"errors"
	"testing"

	"github.com/spf13/cobra"

	"github.com/fermata-io/fermata/internal/cli/suggest"
)

// tree is a command with others below it.
func tree() (root, jobs *cobra.Command) {
	leaf := func(use string, aliases ...string) *cobra.Command {
		return &cobra.Command{Use: use, Aliases: aliases, Run: func(*cobra.Command, []string) {}}
	}
	root = &cobra.Command{Use: "fermata"}
	root.PersistentFlags().String("namespace", "", "")
	root.PersistentFlags().Bool("no-headers", false, "")
	jobs, queues := &cobra.Command{Use: "jobs", Aliases: []string{"job"}}, &cobra.Command{Use: "queues"}
	list := leaf("list", "ls")
	list.Flags().String("queue", "", "")
	list.Flags().Bool("all", false, "")
	_ = list.Flags().MarkHidden("all")
	secret := leaf("secret")
	secret.Hidden = true
	run := leaf("run")
	run.SuggestFor = []string{"trigger"}
	jobs.AddCommand(list, leaf("create"), leaf("pause"), leaf("resume"), leaf("delete", "rm"), run, secret)
	queues.AddCommand(leaf("list"), leaf("pause"))
	suggest.AnswerUnknownCommand(queues, "queues go with their last job", "delete", "rm")
	root.AddCommand(jobs, queues, leaf("preview"))
	return root, jobs
}

func TestUnknownCommands(t *testing.T) {
	root, jobs := tree()
	queues := root.Commands()[2]
	for _, tt := range []struct {
		cmd  *cobra.Command
		name string
		want string
	}{
		{jobs, "lst", `unknown command "lst" for "fermata jobs"; did you mean fermata jobs list?`},
		{jobs, "crate", `unknown command "crate" for "fermata jobs"; did you mean fermata jobs create?`},
		{jobs, "LIST", `unknown command "LIST" for "fermata jobs"; did you mean fermata jobs list?`},
		{jobs, "preview", `unknown command "preview" for "fermata jobs"; did you mean fermata preview?`},
		{root, "jbos", `unknown command "jbos" for "fermata"; did you mean fermata jobs?`},
		{root, "pause", `unknown command "pause" for "fermata"; did you mean fermata jobs pause or fermata queues pause?`},
		{root, "create", `unknown command "create" for "fermata"; did you mean fermata jobs create?`},
		{jobs, "trigger", `unknown command "trigger" for "fermata jobs"; did you mean fermata jobs run?`},
		{root, "Trigger", `unknown command "Trigger" for "fermata"; did you mean fermata jobs run?`},
		{jobs, "resum", `unknown command "resum" for "fermata jobs"; did you mean fermata jobs resume?`},
		{jobs, "delte", `unknown command "delte" for "fermata jobs"; did you mean fermata jobs delete?`},
		{jobs, "rename", `unknown command "rename" for "fermata jobs"`},
		{jobs, "unpause", `unknown command "unpause" for "fermata jobs"`},
		{jobs, "undelete", `unknown command "undelete" for "fermata jobs"`},
		{jobs, "rs", `unknown command "rs" for "fermata jobs"; did you mean fermata jobs list?`},
		{queues, "delete", `unknown command "delete" for "fermata queues": queues go with their last job`},
		{queues, "resume", `unknown command "resume" for "fermata queues"`},
		{queues, "run", `unknown command "run" for "fermata queues"`},
		{root, "delete", `unknown command "delete" for "fermata"`},
		{root, "rm", `unknown command "rm" for "fermata"`},
		{jobs, "secret", `unknown command "secret" for "fermata jobs"`},
		{jobs, "nothing-like-it", `unknown command "nothing-like-it" for "fermata jobs"`},
		{jobs, "", `unknown command "" for "fermata jobs"`},
	} {
		if got := suggest.UnknownCommand(tt.cmd, tt.name).Error(); got != tt.want {
			t.Errorf("%s\nwant %s", got, tt.want)
		}
	}
}

func TestUnknownFlags(t *testing.T) {
	for arg, want := range map[string]string{
		"--quue=x":     "unknown flag: --quue; did you mean --queue?",
		"--name-space": "unknown flag: --name-space; did you mean --namespace?",
		"-queue":       "unknown shorthand flag: 'q' in -queue; did you mean --queue?",
		"-n":           "unknown shorthand flag: 'n' in -n; did you mean --namespace or --no-headers?",
		"--al":         "unknown flag: --al; see fermata jobs list --help",
		"--speed":      "unknown flag: --speed; see fermata jobs list --help",
		"-z":           "unknown shorthand flag: 'z' in -z; see fermata jobs list --help",
	} {
		root, _ := tree()
		var said error
		root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
			said = suggest.UnknownFlag(cmd, err)
			return said
		})
		root.SilenceErrors, root.SilenceUsage = true, true
		root.SetArgs([]string{"jobs", "list", arg})
		if err := root.Execute(); err == nil || said == nil || said.Error() != want {
			t.Errorf("%s: %v, want %s", arg, said, want)
		}
	}
	other := errors.New("flag needs an argument: --queue")
	if err := suggest.UnknownFlag(&cobra.Command{}, other); err != other {
		t.Errorf("another error became %v", err)
	}
}
