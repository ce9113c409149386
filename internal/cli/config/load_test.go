package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// settings is a command with a flag of each type in use.
type settings struct {
	cmd     *cobra.Command
	queues  *[]string
	join    *[]string
	slots   *int
	timeout *time.Duration
	labels  *map[string]string
	tls     *bool
	name    *string
}

func newSettings(t *testing.T, args ...string) settings {
	t.Helper()
	cmd := &cobra.Command{Use: "x"}
	f := cmd.Flags()
	s := settings{
		cmd:     cmd,
		queues:  f.StringSlice("queues", []string{"default"}, ""),
		join:    f.StringArray("join-list", nil, ""),
		slots:   f.Int("slots", 4, ""),
		timeout: new(time.Duration),
		labels:  f.StringToString("labels", nil, ""),
		tls:     f.Bool("tls", false, ""),
		name:    f.String("name", "n", ""),
	}
	DurationVar(f, s.timeout, "op-timeout", time.Second, "")
	f.String("config", "", "")
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	return s
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPrecedence(t *testing.T) {
	path := writeFile(t, "slots: 1\nname: file\nop-timeout: 3s\n")
	t.Setenv("FT_SLOTS", "2")
	t.Setenv("FT_NAME", "env")
	t.Setenv("FT_TLS", "")
	s := newSettings(t, "--slots=3", "--config="+path)
	if err := Load(s.cmd, "FT"); err != nil {
		t.Fatal(err)
	}
	if *s.slots != 3 || *s.name != "env" || *s.timeout != 3*time.Second || *s.tls {
		t.Errorf("slots %d, name %s, timeout %v, tls %v; want 3 env 3s false", *s.slots, *s.name, *s.timeout, *s.tls)
	}
	if !reflect.DeepEqual(*s.queues, []string{"default"}) {
		t.Errorf("queues %v, want the default", *s.queues)
	}
}

func TestValuesFromEachSource(t *testing.T) {
	check := func(t *testing.T, s settings) {
		t.Helper()
		if err := Load(s.cmd, "FT"); err != nil {
			t.Fatal(err)
		}
		if want := []string{"mail", "a,b"}; !reflect.DeepEqual(*s.queues, want) {
			t.Errorf("queues %q, want %q", *s.queues, want)
		}
		if want := []string{"a:1", "b:2"}; !reflect.DeepEqual(*s.join, want) {
			t.Errorf("join-list %q, want %q", *s.join, want)
		}
		if want := map[string]string{"zone": "a", "note": "x,y"}; !reflect.DeepEqual(*s.labels, want) {
			t.Errorf("labels %v, want %v", *s.labels, want)
		}
		if !*s.tls || *s.timeout != 90*time.Second {
			t.Errorf("tls %v timeout %v", *s.tls, *s.timeout)
		}
		if !s.cmd.Flags().Changed("queues") || !s.cmd.Flags().Changed("tls") {
			t.Error("filled flags must count as changed")
		}
	}
	t.Run("environment", func(t *testing.T) {
		t.Setenv("FT_QUEUES", `mail, "a,b"`)
		t.Setenv("FT_JOIN_LIST", "a:1\nb:2\n")
		t.Setenv("FT_LABELS", `zone=a,"note=x,y"`)
		t.Setenv("FT_TLS", "true")
		t.Setenv("FT_OP_TIMEOUT", "1m30s")
		check(t, newSettings(t))
	})
	t.Run("file", func(t *testing.T) {
		path := writeFile(t, `
queues: [mail, "a,b"]
join-list:
  - a:1
  - b:2
labels: {zone: a, note: "x,y"}
tls: true
op-timeout: 90s
`)
		t.Setenv("FT_CONFIG", path)
		check(t, newSettings(t))
	})
}

func TestFaultsNameTheirKey(t *testing.T) {
	tests := map[string]struct {
		env, file string
		want      []string
	}{
		"unknown key":   {file: "slots: 1\nspeed: 2\n", want: []string{"line 2", "speed: unknown key"}},
		"other style":   {file: "op_timeout: 1s", want: []string{"op_timeout", "did you mean op-timeout?"}},
		"misspelt":      {file: "sltos: 3", want: []string{"sltos", "did you mean slots?"}},
		"camel case":    {file: "opTimeout: 1s", want: []string{"opTimeout", "did you mean op-timeout?"}},
		"nested config": {file: "config: other.yaml", want: []string{"config: unknown key"}},
		"wrong type":    {file: "slots: many", want: []string{"slots"}},
		"list":          {file: "slots: [1, 2]", want: []string{"slots: takes one value"}},
		"mapping":       {file: "queues: {a: b}", want: []string{"queues: takes no mapping"}},
		"nested list":   {file: "queues: [[a]]", want: []string{"queues", "plain value"}},
		"null":          {file: "name:", want: []string{"name: has no value"}},
		"twice":         {file: "slots: 1\nslots: 2", want: []string{"slots: occurs twice"}},
		"not a mapping": {file: "- a", want: []string{"top level"}},
		"not yaml":      {file: "a: [", want: []string{"c.yaml"}},
		"two documents": {file: "---\n{}\n---\n{}\n", want: []string{"more than one document"}},
		"two at once":   {env: "abc", file: "speed: 2", want: []string{"FT_SLOTS", "speed"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv("FT_SLOTS", tt.env)
			s := newSettings(t, "--config="+writeFile(t, tt.file))
			err := Load(s.cmd, "FT")
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q lacks %q", err, want)
				}
			}
		})
	}
}

// TestUnreadVariables: a slip in a name is found, what has nothing to do with a flag is left alone.
func TestUnreadVariables(t *testing.T) {
	for name, value := range map[string]string{
		"FT_SLTOS": "3", "FT_OP_TIMOUT": "1s", "FT_QUEUES": "a", "FT_SERVICE_HOST": "10.0.0.1", "FT_PORT": "tcp://10.0.0.1:7070", "FT_NAMES": "", "FTX_SLOT": "1",
		"FT_SECRET": "s3cret", "FT_HELPS": "1", "FT_CONFIGS": "x",
	} {
		t.Setenv(name, value)
	}
	s := newSettings(t)
	s.cmd.Flags().String("secret-file", "", "")
	var got []string
	for _, u := range UnreadVariables(s.cmd.Flags(), "FT") {
		got = append(got, u.String())
	}
	want := []string{
		"environment variable FT_OP_TIMOUT is not read; did you mean FT_OP_TIMEOUT?",
		"environment variable FT_SECRET is not read; did you mean FT_SECRET_FILE?",
		"environment variable FT_SLTOS is not read; did you mean FT_SLOTS?",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestMissingFileIsAnError(t *testing.T) {
	s := newSettings(t, "--config=/does/not/exist.yaml")
	if err := Load(s.cmd, "FT"); err == nil || !strings.Contains(err.Error(), "/does/not/exist.yaml") {
		t.Errorf("got %v", err)
	}
}

func TestReadSecretFile(t *testing.T) {
	if s, err := ReadSecretFile(writeFile(t, " s3cret \r\n\n")); err != nil || s != " s3cret " {
		t.Errorf("got %q, %v", s, err)
	}
	if s, err := ReadSecretFile(""); err != nil || s != "" {
		t.Errorf("empty path: %q, %v", s, err)
	}
	for name, text := range map[string]string{"nothing": "\n", "longer": strings.Repeat("x", maxSecretBytes+1)} {
		_, err := ReadSecretFile(writeFile(t, text))
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ReadSecretFile("/does/not/exist"); err == nil {
		t.Error("missing file: no error")
	}
}

func TestPositive(t *testing.T) {
	for args, want := range map[string]string{
		"":                           "",
		"--slots=1 --op-timeout=1ns": "",
		"--slots=0":                  "--slots 0: want more than 0; the default is 4",
		"--slots=-1":                 "", // whoever knows its range says so
		"--op-timeout=0 --name=0":    "--op-timeout 0: want more than 0; the default is 1s",
		"--slots=0 --op-timeout=0ms": "--slots 0: want more than 0; the default is 4\n--op-timeout 0: want more than 0; the default is 1s",
	} {
		s := newSettings(t, strings.Fields(args)...)
		got := ""
		if err := RequirePositive(s.cmd.Flags(), "slots", "op-timeout"); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", args, got, want)
		}
	}
}
