package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestContexts sets, uses, shows and deletes contexts.
func TestContexts(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	t.Setenv("HOME", dir)
	c := startCluster(t)
	address := c.address
	run := func(line string) (int, string, string) {
		t.Helper()
		code, out, errs := runWithoutAddress(t, strings.Fields(strings.ReplaceAll(line, "ADDRESS", address))...)
		return code, out, strings.ReplaceAll(errs, dir, "DIR")
	}
	steps := []struct {
		line string
		code int
		want string // in the output, or in the errors of a failure
	}{
		{"config get-contexts", exitOK, "no contexts"},
		{"config current-context", exitNotFound, "there is no current context"},
		{"config view --columns setting,value,source", exitOK, "127.0.0.1:7070"},
		{"config set-context here", exitUsage, "nothing to set"},
		{"config set-context", exitUsage, "give the name of a context, or --current"},
		{"config set-context --current --namespace x", exitUsage, "there is no current context"},
		{"config set-context no/name --namespace x", exitUsage, "want 1 to 63 letters"},
		{"config set-context here --address ADDRESS --namespace team --request-timeout 1d", exitOK, "created context here"},
		{"config set-context away --address 127.0.0.1:1 --tls --token-file token", exitOK, "created context away"},
		{"config use-context hree", exitUsage, "did you mean here?"},
		{"config use-context here", exitOK, "the current context is here"},
		{"config current-context", exitOK, "here"},
		{"config get-contexts -o name", exitOK, "here\naway\n"},
		{"config get-contexts -o json", exitOK, `"namespace": "team"`},
		{"jobs create ping --handler h", exitOK, "created ping"},
		{"jobs list -o name", exitOK, "ping\n"},
		{"jobs list -o name --namespace default", exitOK, ""},
		{"config view -o json", exitOK, `"source": "context here"`},
		{"jobs list --context nowhere", exitUsage, `there is no context "nowhere"`},
		{"config set-context --current --namespace default", exitOK, "changed context here"},
		{"jobs list -o name --context here", exitOK, ""},
		{"config set-context here --unset namespace,request-timeout", exitOK, "changed context here"},
		{"config set-context here --unset namespace", exitUsage, "does not set namespace"},
		{"config delete-context here", exitOK, "deleted context here"},
		{"config delete-context here", exitUsage, `there is no context "here"`},
		{"config current-context", exitNotFound, "no current context"},
		{"config get-contexts --no-headers", exitOK, "away"},
	}
	for _, s := range steps {
		code, out, errs := run(s.line)
		got := out
		if code != exitOK {
			got = errs
		}
		if code != s.code || !strings.Contains(got, s.want) {
			t.Errorf("%s: exit %d, want %d with %q\n%s%s", s.line, code, s.code, s.want, out, errs)
		}
	}
	path := filepath.Join(dir, "fermata", "config.yaml")
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
	text, err := os.ReadFile(path)
	if working, _ := os.Getwd(); err != nil || !strings.Contains(string(text), "token-file: "+working+"/token") {
		t.Errorf("relative path: %s, %v", text, err)
	}
}

// TestPrecedenceOfContexts: a flag, then the environment, then the context, then the rest of the file.
func TestPrecedenceOfContexts(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	t.Setenv("HOME", dir)
	if err := os.MkdirAll(filepath.Join(dir, "fermata"), 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "fermata", "config.yaml")
	write := func(text string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	write("namespace: file\noutput: table\ncurrent-context: one\ncontexts:\n  one: {namespace: one}\n  two: {namespace: two, tls: true}\n  three:\n", 0o600)
	view := func(args ...string) string {
		t.Helper()
		code, out, errs := runWithoutAddress(t, append(args, "config", "view", "--columns", "setting,value,source")...)
		for line := range strings.Lines(out) {
			if fields := strings.Fields(line); fields[0] == "namespace" {
				return strings.Join(fields[1:], " ") + "|" + errs
			}
		}
		t.Fatalf("exit %d: %s%s", code, out, errs)
		return ""
	}
	for _, tt := range []struct{ env, args, want string }{
		{"", "", "one context one|"},
		{"", "--context two", "two context two|"},
		{"", "--context three", "file file " + path + "|"},
		{"env", "", "env environment variable FERMATA_NAMESPACE|"},
		{"env", "--context two", "env environment variable FERMATA_NAMESPACE|warning: FERMATA_NAMESPACE is set and takes the place of namespace of the context\n"},
		{"env", "--context two --namespace flag", "flag flag|"},
		{"", "--config /dev/null", "default default|"},
	} {
		t.Setenv("FERMATA_NAMESPACE", tt.env)
		if got := view(strings.Fields(tt.args)...); got != tt.want {
			t.Errorf("%+v: %q", tt, got)
		}
	}
	t.Setenv("FERMATA_NAMESPACE", "")
	t.Setenv("FERMATA_CONTEXT", "two")
	if got := view(); got != "two context two|" {
		t.Errorf("FERMATA_CONTEXT: %q", got)
	}
	t.Setenv("FERMATA_CONTEXT", "")
	for text, want := range map[string]string{
		"current-context: gone\ncontexts: {one: {}}\n":           `there is no context "gone"`,
		"contexts: [one]\n":                                      "contexts: must map names of contexts to settings",
		"contexts: {one: text}\n":                                `context "one": must map names of flags to values`,
		"contexts: {one: {}, one: {}}\n":                         `context "one": occurs twice`,
		"current-context: one\ncontexts: {one: {namspace: x}}\n": "namspace: unknown key; did you mean namespace?",
		"current-context: one\ncontexts: {one: {context: x}}\n":  "context: unknown key",
	} {
		write(text, 0o600)
		if code, _, errs := runWithoutAddress(t, "config", "view"); code != exitUsage || !strings.Contains(errs, want) {
			t.Errorf("%q: exit %d: %s", text, code, errs)
		}
	}
	write("contexts: {one: {}}\n", 0o644)
	for _, line := range []string{"config view", "config get-contexts", "config use-context one"} {
		if code, _, errs := runWithoutAddress(t, strings.Fields(line)...); code != exitUsage || !strings.Contains(errs, "others may use") {
			t.Errorf("%s of a file with mode 0644: exit %d: %s", line, code, errs)
		}
	}
}

// runWithoutAddress runs a command line without --address.
func runWithoutAddress(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr strings.Builder
	code = runCommand(t.Context(), args, standardStreams{strings.NewReader(""), &stdout, &stderr}, time.Now)
	return code, stdout.String(), stderr.String()
}
