package exechandler

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/fermata-io/fermata/internal/core/payload"
)

// allowedVariables are the variables that payloads may set.
type allowedVariables struct {
	names    map[string]bool
	prefixes []string
}

// dangerousVariables make a shell, an interpreter, a library or a common tool run code or contact a server that
// the payload chooses. Patterns do not allow them.
var dangerousVariables = []string{
	"RES_OPTIONS", "HOSTALIASES", "LOCALDOMAIN", "TZDIR", "TMPDIR", "SHELL", "USER", "LOGNAME",
	"BASH_*", "PS4", "CDPATH", "ZDOTDIR", "FPATH", "PROMPT_COMMAND", "PERL*", "PYTHON*", "RUBY*", "GEM_*",
	"BUNDLE_*", "NODE_*", "NPM_CONFIG_*", "JAVA_HOME", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS",
	"CLASSPATH", "DOTNET_*",
	"COMPLUS_*", "CORECLR_*", "PHPRC", "PHP_INI_SCAN_DIR", "LUA_*", "TCLLIBPATH", "R_*", "GOFLAGS",
	"GOPATH", "GOROOT", "GOTOOLCHAIN", "GIT_*", "SSH_*", "CURL_HOME",
	"OPENSSL_*", "SSL_CERT_*", "SSLKEYLOGFILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "*_PROXY", "KUBECONFIG",
	"DOCKER_*",
	"AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_ENDPOINT_URL*", "EDITOR", "VISUAL", "PAGER", "LESS*",
	"XDG_*",
	"TAR_OPTIONS", "RSYNC_RSH", "RSYNC_CONNECT_PROG", "CVS_RSH", "SVN_SSH", "HGRCPATH", "MAKEFLAGS", "GNUMAKEFLAGS",
	"MAKEFILES", "AWKPATH",
	"AWKLIBPATH", "RIPGREP_CONFIG_PATH", "PSQLRC", "PSQL_*", "PGHOST*", "PGSSL*", "PGSERVICE*", "PGSYSCONFDIR",
	"PGPASSFILE", "MYSQL_HOME", "MYSQL_HOST", "LIBMYSQL_*",
	"WGETRC", "SYSTEM_WGETRC", "VIMINIT", "EXINIT", "INPUTRC", "TERMINFO*", "TERMCAP", "GNUPGHOME", "KRB5_CONFIG",
	"SASL_PATH", "JAVA_OPTS", "MAVEN_*",
	"GRADLE_*", "ERL_*", "RUSTC*", "CARGO_*", "PIP_*", "HELM_*", "TF_CLI_*", "ANSIBLE_*", "SUDO_*",
	"BORG_*", "RESTIC_*", "RCLONE_*", "GS_*", "VAULT_*", "APT_CONFIG", "ODBC*",
}

// allowVariables parses [Options.Env].
func allowVariables(given []string, logger *slog.Logger) (allowedVariables, error) {
	v := allowedVariables{names: map[string]bool{}}
	for _, g := range given {
		prefix, isPattern := strings.CutSuffix(g, "*")
		switch {
		case !payload.IsVariable(prefix):
			return v, fmt.Errorf("exec handler: %.80q is neither the name of a variable nor the beginning of "+
				"names, such as APP_*", g)
		case isPattern && !strings.HasSuffix(prefix, "_") || prefix == "_" && isPattern:
			return v, fmt.Errorf("exec handler: %s allows too much: a pattern is a whole word, such as APP_*", g)
		case payload.IsReservedVariable(prefix):
			return v, fmt.Errorf("exec handler: the variable %s cannot be allowed: it is the worker's, or steers "+
				"the loader of programs", g)
		case isPattern && payload.IsCovered(prefix, dangerousVariables):
			return v, fmt.Errorf("exec handler: %s allows variables that make programs run other code or ask "+
				"another server: name each that is needed", g)
		case isPattern:
			v.prefixes = append(v.prefixes, prefix)
		default:
			if payload.IsCovered(g, dangerousVariables) {
				logger.Warn("jobs may set a variable that makes programs run other code or contact another server",
					"variable", g)
			}
			v.names[g] = true
		}
	}
	return v, nil
}

// checkNames rejects variables that are not allowed.
func (v allowedVariables) checkNames(env map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		switch {
		case payload.IsReservedVariable(name):
			return fmt.Errorf("%.80s cannot be set", name)
		case !v.isAllowed(name):
			return fmt.Errorf("%.80s is not allowed on this worker; --exec-env %.80s would allow it", name, name)
		}
	}
	return nil
}

func (v allowedVariables) isAllowed(name string) bool {
	return v.names[name] || !payload.IsCovered(name, dangerousVariables) &&
		slices.ContainsFunc(v.prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}
