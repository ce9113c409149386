package exechandler

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/fermata-io/fermata/worker/secrets"
)

// payload is the program run that a job describes.
type payload struct {
	Argv  []string          `json:"argv"`
	Env   map[string]string `json:"env"`
	Dir   string            `json:"dir"`
	Stdin string            `json:"stdin"`
}

func parse(text []byte) (*payload, error) {
	var p payload
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&p); err != nil {
		return nil, fmt.Errorf("payload: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("payload: more than one JSON value")
	}
	if len(p.Argv) == 0 {
		return nil, errors.New("payload: argv is empty")
	}
	for _, a := range p.Argv {
		if strings.ContainsRune(a, 0) {
			return nil, errors.New("payload: argv holds a NUL byte")
		}
		if secrets.Refers(a) {
			return nil, errors.New("payload: argv: a reference to a secret may stand in env and stdin only")
		}
	}
	for name, value := range p.Env {
		if err := checkVariable(name, value); err != nil {
			return nil, fmt.Errorf("payload: env: %w", err)
		}
	}
	if p.Dir != "" && (!filepath.IsAbs(p.Dir) || strings.ContainsRune(p.Dir, 0)) {
		return nil, errors.New("payload: dir is not an absolute path")
	}
	return &p, nil
}

// expand puts secrets in the place of references. Arguments have none: anybody on
// the machine can read them.
func (p *payload) expand(use *secrets.Use) error {
	var err error
	if p.Stdin, err = use.Expand(p.Stdin); err != nil {
		return fmt.Errorf("stdin: %w", err)
	}
	for name, value := range p.Env {
		full, err := use.Expand(value)
		if err != nil {
			return fmt.Errorf("env: %s: %w", name, err)
		}
		if strings.ContainsRune(full, 0) {
			return fmt.Errorf("env: %s: the secret holds a NUL byte", name)
		}
		p.Env[name] = full
	}
	return nil
}

// loaders are variables that make a dynamic loader, a shell, an interpreter or a
// common library run code of the payload's choice, or talk to a server of its
// choice; PATH, HOME, LANG and FERMATA_ belong to the worker. A * at the end is any
// ending, one at the beginning any beginning.
var loaders = []string{
	"LD_*", "DYLD_*", "GCONV_PATH", "GLIBC_TUNABLES", "MALLOC_*", "LOCPATH", "NLSPATH", "RES_OPTIONS", "HOSTALIASES", "LOCALDOMAIN",
	"BASH_*", "ENV", "SHELLOPTS", "PS4", "IFS", "CDPATH", "ZDOTDIR", "FPATH", "PROMPT_COMMAND", "PERL*", "PYTHON*", "RUBY*", "GEM_*",
	"BUNDLE_*", "NODE_*", "NPM_CONFIG_*", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "CLASSPATH", "DOTNET_*",
	"COMPLUS_*", "CORECLR_*", "PHPRC", "PHP_INI_SCAN_DIR", "LUA_*", "TCLLIBPATH", "R_*", "GODEBUG", "GOFLAGS", "GOGC", "GOMAXPROCS", "GOMEMLIMIT",
	"GOPATH", "GOROOT", "GOTOOLCHAIN", "GOTRACEBACK", "GIT_*", "SSH_*", "CURL_HOME",
	"OPENSSL_*", "SSL_CERT_*", "SSLKEYLOGFILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "*_PROXY", "KUBECONFIG", "DOCKER_*",
	"AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_ENDPOINT_URL*", "EDITOR", "VISUAL", "PAGER", "LESS*", "XDG_*",
	"TAR_OPTIONS", "RSYNC_RSH", "RSYNC_CONNECT_PROG", "CVS_RSH", "SVN_SSH", "HGRCPATH", "MAKEFLAGS", "GNUMAKEFLAGS", "MAKEFILES", "AWKPATH",
	"AWKLIBPATH", "RIPGREP_CONFIG_PATH", "PSQLRC", "PSQL_*", "PGSERVICEFILE", "PGSYSCONFDIR", "PGPASSFILE", "MYSQL_HOME", "LIBMYSQL_*", "WGETRC",
	"SYSTEM_WGETRC", "VIMINIT", "EXINIT", "INPUTRC", "TERMINFO*", "TERMCAP", "GNUPGHOME", "KRB5_CONFIG", "SASL_PATH", "JAVA_OPTS", "MAVEN_*",
	"GRADLE_*", "ERL_*", "RUSTC*", "CARGO_*", "PIP_*", "HELM_*", "TF_CLI_*", "ANSIBLE_*", "SUDO_*",
	"PATH", "HOME", "LANG", "TMPDIR", "FERMATA_*",
}

func checkVariable(name, value string) error {
	if name == "" || strings.ContainsRune(value, 0) || strings.IndexFunc(name, notInName) >= 0 || name[0] >= '0' && name[0] <= '9' {
		return fmt.Errorf("%.40q is not a name, or its value holds a NUL byte", name)
	}
	for _, l := range loaders {
		prefix, isPrefix := strings.CutSuffix(l, "*")
		suffix, isSuffix := strings.CutPrefix(l, "*")
		upper := strings.ToUpper(name)
		if upper == l || isPrefix && strings.HasPrefix(upper, prefix) || isSuffix && strings.HasSuffix(upper, suffix) {
			return fmt.Errorf("%s cannot be set", name)
		}
	}
	return nil
}

func notInName(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_'
}
