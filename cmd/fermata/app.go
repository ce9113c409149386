package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/auth/signin"
	"github.com/fermata-io/fermata/internal/auth/tlsfiles"
	"github.com/fermata-io/fermata/internal/cli/config"
	"github.com/fermata-io/fermata/internal/cli/suggest"
)

// app is one invocation: its streams and the flags that all commands share.
type app struct {
	standardStreams
	now func() time.Time

	addresses []string
	namespace string
	output    string
	noHeaders bool
	// width is that of the output; 0: that of the terminal, if it is one.
	width int
	// columnNames are the columns of --columns; none: all.
	columnNames []string
	// severalFlags are the texts of a command that prints one for each of several names, which
	// become one document; nil: each is printed as it comes.
	severalFlags *[]string
	timeout      time.Duration
	// requestID is that of --request-id.
	requestID string
	// listColumns returns the columns of each command that lists things.
	listColumns map[*cobra.Command]func() []string
	// completing is set while the shell completes a command line.
	completing bool
	// givenFlags are the global flags of the command line, for commands that store them.
	givenFlags map[string]bool

	tokenFile string
	oidc      signin.Settings
	traceTo   string
	tls       bool
	tlsFiles  tlsfiles.Files
}

const rootHelp = `Register jobs with a Fermata cluster, and see how they and the cluster are doing.

The flags under "Global Flags" can also be set by the environment (--address is
FERMATA_ADDRESS), and in a file: the one that --config or FERMATA_CONFIG names, else
your own, fermata/config.yaml in the directory of your settings (~/.config on Linux).
The file may have contexts, one for each cluster: see fermata config. A value of the
command line comes first, then that of the environment, of the context, of the rest
of the file.

Durations are such as 250ms, 30s, 1h30m, 7d and 2w. A day has 24 hours.

Exit codes:
  0  done
  1  failed
  2  wrong usage, or the cluster refused a value, or a job of another owner
  3  no such job or run
  4  conflict: the id is taken, or the job was changed concurrently
  5  no node, or no Redis behind it, could be reached in time
  6  fermata diff --exit-code: there are changes to make
  7  not signed in, or the session has ended: run fermata login
  8  interrupted while it waited for runs, which continue`

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use: "fermata", Short: "Register jobs with a Fermata cluster", Long: rootHelp,
		SilenceUsage: true, SilenceErrors: true, Version: versionText(), Args: noArgs,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if cmd == cmd.Root() {
				return nil // it shows its help, whatever the settings are
			}
			return a.completeFlags(cmd)
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	f := root.PersistentFlags()
	f.StringSliceVar(&a.addresses, "address", []string{"127.0.0.1:7070"},
		"addresses of nodes, host:port (port 7070 if left out); any one answers for all")
	f.StringVar(&a.namespace, "namespace", "default", "namespace of the jobs")
	f.StringVarP(&a.output, "output", "o", "table", "table, json or yaml; of lists also name: one name a line")
	f.BoolVar(&a.noHeaders, "no-headers", false, "leave out the headings of tables, and the text for an empty table")
	config.DurationVar(f, &a.timeout, "request-timeout", 15*time.Second,
		"longest time for the whole command, including retries")
	f.BoolVar(&a.tls, "tls", false, "use TLS; implied by the other --tls flags")
	f.StringVar(&a.tlsFiles.Authorities, "tls-ca", "", "PEM file with the certificate authority (default: the system's)")
	f.StringVar(&a.tlsFiles.Cert, "tls-cert", "", "PEM file with this client's certificate")
	f.StringVar(&a.tlsFiles.Key, "tls-key", "", "PEM file with this client's key")
	f.StringVar(&a.tlsFiles.ServerName, "tls-server-name", "", "name in the server's certificate (default: the host)")
	f.StringVar(&a.tokenFile, "token-file", "",
		"file with the token of the caller; beyond this host it needs TLS (default: the session of fermata login)")
	a.oidcFlags(f)
	f.StringVar(&a.traceTo, "trace-endpoint", "",
		"send a span of the command to this OpenTelemetry collector: http://host:4317, or https://host:4317 for "+
			"TLS (default: OTEL_EXPORTER_OTLP_ENDPOINT, or nowhere); TRACEPARENT in the environment is passed on in "+
			"any case")
	f.String("config", "", "YAML file with contexts and values for the global flags (default: fermata/config.yaml in "+
		"your directory of settings)")
	f.String("context", "", "context to use, one of fermata config get-contexts (default: the current one)")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return newUsageError(config.ExplainValue(suggest.UnknownFlag(cmd, err)))
	})
	root.AddCommand(
		a.jobsCommand(), a.topCommand(), a.lateCommand(), a.failingCommand(), a.deadLettersCommand(), a.queuesCommand(),
		a.targetsCommand(), a.locksCommand(), a.namespacesCommand(), a.endedRunsCommand(), a.forecastCommand(),
		a.previewCommand(), a.presetsCommand(), a.applyCommand(), a.diffCommand(), a.exportCommand(), a.importCommand(),
		a.clusterCommand(), a.eventsCommand(), a.webhooksCommand(), a.auditCommand(), a.payloadsCommand(),
		a.loginCommand(), a.logoutCommand(), a.whoamiCommand(), a.redisCommand(), a.logLevelCommand(),
		a.consoleCommand(), a.configCommand(), a.workerCommand(), a.versionCommand(),
	)
	addExamples(root)
	return root
}

// completeFlags fills the global flags from the environment and the file, and checks them.
func (a *app) completeFlags(cmd *cobra.Command) error {
	flags := cmd.Root().PersistentFlags()
	if err := config.LoadFlags(flags, "FERMATA"); err != nil {
		return newUsageError(err)
	}
	a.warnOverridden(flags)
	for _, variable := range config.UnreadVariables(flags, "FERMATA") {
		fmt.Fprintln(a.err, "warning:", printableText(variable.String()))
	}
	return a.checkFlags(cmd)
}

// normalizeAddresses adds the default port to addresses without one.
func (a *app) normalizeAddresses() error {
	for i, address := range a.addresses {
		full, err := fullAddress(address)
		if err != nil {
			return err
		}
		a.addresses[i] = full
	}
	return nil
}

func (a *app) checkFlags(cmd *cobra.Command) error {
	if err := a.normalizeAddresses(); err != nil {
		return err
	}
	if err := checkFlagGroups(cmd); err != nil {
		return err
	}
	switch {
	case a.output == "name" && cmd.Annotations[printsNames] == "":
		return usageErrorf("%s has no names to print: -o name is for commands that list things, or change jobs, runs "+
			"or queues", cmd.CommandPath())
	case !slices.Contains([]string{"table", "json", "yaml", "name"}, a.output):
		return usageErrorf("--output %q: want table, json, yaml or name", a.output)
	case a.output != "table" && len(a.columnNames) > 0:
		return usageErrorf("--columns is for tables, and --output is %s", a.output)
	case a.timeout <= 0:
		return usageErrorf("--request-timeout %v: must be positive", a.timeout)
	case (a.tlsFiles.Cert == "") != (a.tlsFiles.Key == ""):
		return usageErrorf("--tls-cert and --tls-key go together")
	}
	return nil
}

// excludingFlags finds the flags in cobra's error about flags that exclude each other.
var excludingFlags = regexp.MustCompile(`\[([^\[\]]+)\] were all set`)

// checkFlagGroups makes the error of flags that exclude each other a usage error.
func checkFlagGroups(cmd *cobra.Command) error {
	err := cmd.ValidateFlagGroups()
	if err == nil {
		return nil
	}
	if found := excludingFlags.FindStringSubmatch(err.Error()); found != nil {
		return usageErrorf("--%s exclude each other", strings.Join(strings.Fields(found[1]), " and --"))
	}
	return newUsageError(err)
}

const defaultPort = "7070"

// fullAddress adds the port of a node to a host without one, and refuses URLs.
func fullAddress(address string) (string, error) {
	if scheme, rest, found := strings.Cut(address, "://"); found {
		if scheme == "http" || scheme == "https" {
			return "", usageErrorf("--address %q: leave %s:// out; nodes are reached as host:port, and TLS is "+
				"asked for by --tls", address, scheme)
		}
		return scheme + "://" + rest, nil
	}
	host := strings.TrimSuffix(strings.TrimPrefix(address, "["), "]")
	if host != "" && (net.ParseIP(host) != nil || !strings.Contains(address, ":")) {
		return net.JoinHostPort(host, defaultPort), nil
	}
	return address, nil
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			return a.printResult(versionText(), resultFact{"version", versionText()})
		},
	}
}

// withSession runs one call or several against the cluster.
func (a *app) withSession(cmd *cobra.Command, do func(ctx context.Context, c *client.Client) error) error {
	return a.withClient(cmd.Context(), func(c *client.Client) (err error) {
		ctx, cancel := context.WithTimeout(cmd.Context(), a.timeout)
		defer cancel()
		ctx, ended, err := a.startTrace(ctx, cmd.CommandPath())
		if err != nil {
			return newUsageError(err)
		}
		defer func() { ended(err) }()
		return do(ctx, c)
	})
}

// withClient calls do with a new client and closes it.
func (a *app) withClient(ctx context.Context, do func(*client.Client) error) error {
	c, err := a.newClient(ctx)
	if err != nil {
		return newUsageError(err)
	}
	defer c.Close()
	return do(c)
}

// newClient returns a client for the flags. Its errors are usage errors.
func (a *app) newClient(ctx context.Context) (*client.Client, error) {
	secure, err := a.tlsConfig()
	if err != nil {
		return nil, err
	}
	o := client.Options{Namespace: a.namespace, TLS: secure}
	o.Token, err = a.tokenSource(ctx)
	if err != nil {
		return nil, err
	}
	return client.Dial(a.addresses, o)
}

func (a *app) tlsConfig() (*tls.Config, error) {
	if !a.tls && a.tlsFiles == (tlsfiles.Files{}) {
		return nil, nil
	}
	source, err := tlsfiles.Open(tlsfiles.Options{
		Files: a.tlsFiles, Called: tlsfiles.Files{Cert: "--tls-cert", Key: "--tls-key", Authorities: "--tls-ca"},
	})
	if err != nil {
		return nil, err
	}
	return source.ClientConfig(), nil
}
