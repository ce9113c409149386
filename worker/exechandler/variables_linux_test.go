//go:build amd64 || arm64

package exechandler

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/fermata-io/fermata/internal/cli/importer"
	"github.com/fermata-io/fermata/internal/core/payload"
	"github.com/fermata-io/fermata/worker"
)

// steers are variables by which programs ask another server, or run other code.
var steers = strings.Fields(`PGHOST PGHOSTADDR PGSSLMODE PGSERVICE MYSQL_HOST BORG_RSH BORG_PASSCOMMAND RESTIC_PASSWORD_COMMAND RCLONE_CONFIG GS_OPTIONS
	JAVA_HOME SHELL VAULT_ADDR APT_CONFIG ODBCSYSINI TZDIR PYTHONPATH NODE_OPTIONS http_proxy HTTPS_PROXY MAKEFLAGS GIT_SSH_COMMAND XDG_CONFIG_HOME
	CURL_HOME TMPDIR KUBECONFIG AWS_ENDPOINT_URL_S3 PERL5LIB EDITOR`)

func TestNoVariableIsAllowedByDefault(t *testing.T) {
	h := newHandler(t, Options{})
	for _, name := range append([]string{"REGION", "A"}, steers...) {
		err := h(t.Context(), task(payload.Exec{Argv: []string{"/usr/bin/env"}, Env: map[string]string{name: "x"}}))
		if !worker.IsPermanent(err) || !strings.Contains(err.Error(), "--exec-env "+name+" would allow it") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestAllowedVariables(t *testing.T) {
	var log bytes.Buffer
	v, err := allowVariables([]string{"REGION", "APP_*", "PG_*", "PGHOST"}, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "variable=PGHOST") {
		t.Errorf("the log says %q", got)
	}
	for name, want := range map[string]string{
		"REGION": "", "APP_": "", "APP_X": "", "PG_X": "", "PGHOST": "",
		"region": "--exec-env region", "REGIONS": "--exec-env REGIONS", "APPX": "--exec-env APPX", "PGHOSTADDR": "--exec-env PGHOSTADDR",
		"APP_PROXY": "--exec-env APP_PROXY", "PATH": "cannot be set", "ld_preload": "cannot be set", "HOME": "cannot be set", "FERMATA_TOKEN": "cannot be set",
	} {
		err := v.checkNames(map[string]string{name: "x"})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
	}
}

func TestVariablesThatCannotBeAllowed(t *testing.T) {
	for given, want := range map[string]string{
		"LD_PRELOAD": "cannot be allowed", "LD_*": "cannot be allowed", "ld_preload": "cannot be allowed", "HOME": "cannot be allowed", "PATH": "cannot be allowed",
		"FERMATA_TOKEN": "cannot be allowed", "FERMATA_*": "cannot be allowed", "GODEBUG": "cannot be allowed", "BASH_ENV": "cannot be allowed",
		"GLIBC_TUNABLES": "cannot be allowed", "BASH_FUNC_*": "cannot be allowed",
		"RCLONE_*": "name each", "GIT_*": "name each", "PYTHON_*": "name each",
		"*": "neither", "A*": "too much", "_*": "too much", "A*B": "neither", "": "neither", "1A": "neither", "A=B": "neither", "A B": "neither", "A\x00": "neither",
	} {
		if _, err := New(Options{Allow: []string{"/bin/sh"}, AllowRoot: true, Env: []string{given}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", given, err, want)
		}
	}
}

// TestImportsLeaveOutReservedVariables: an import makes no job that every worker refuses.
func TestImportsLeaveOutReservedVariables(t *testing.T) {
	crontab := "KEPT=x\n"
	for _, name := range payload.ReservedVariables() {
		crontab += strings.Replace(name, "*", "X", 1) + "=x\n"
	}
	entries, err := importer.Crontab("crontab", []byte(crontab+"* * * * * /bin/a\n"), importer.CrontabOptions{Zone: "UTC"})
	if err != nil {
		t.Fatal(err)
	}
	text, err := importer.Write("", entries)
	if err != nil {
		t.Fatal(err)
	}
	_, env, _ := strings.Cut(string(text), "\n  env:\n")
	env, _, _ = strings.Cut(env, "\nschedule:")
	if env != "    KEPT: x" || !strings.Contains(string(text), "workers need --exec-env KEPT\n") {
		t.Errorf("%s", text)
	}
}
