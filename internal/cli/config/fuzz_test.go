package config

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// FuzzFile: a configuration file of any bytes is taken or refused; nothing in it
// makes loading panic.
func FuzzFile(f *testing.F) {
	for _, text := range []string{
		"", "slots: 1\nname: file\nop-timeout: 3s\n", "queues: [a, \"b,c\"]\nlabels: {zone: a}\n", "slots: x", "- a", "a: &x [*x]", "x: &a [1]\ny: *a",
		"labels: {? [a]: b}", "slots: 1\nslots: 2", "config: other.yaml", "help: true", "tls: !!binary aGk=", "name: ~", "\xff\xfe", "---\n---\n", "labels: &l {a: *l}",
	} {
		f.Add([]byte(text))
	}
	path := filepath.Join(f.TempDir(), "c.yaml")
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := &cobra.Command{Use: "x"}
		flags := cmd.Flags()
		flags.String("config", path, "")
		flags.StringSlice("queues", nil, "")
		flags.StringArray("join", nil, "")
		slots := flags.Int("slots", 4, "")
		DurationVar(flags, new(time.Duration), "op-timeout", 0, "")
		flags.StringToString("labels", nil, "")
		flags.Bool("tls", false, "")
		flags.String("name", "n", "")
		if err := Load(cmd, "FT_FUZZ"); err == nil && !flags.Changed("slots") && *slots != 4 {
			t.Fatalf("slots is %d", *slots)
		}
	})
}
