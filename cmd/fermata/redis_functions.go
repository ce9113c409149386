package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fermata-io/fermata/internal/auth/tlsfiles"
	"github.com/fermata-io/fermata/internal/cli/config"
	"github.com/fermata-io/fermata/internal/cli/redisflags"
	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/redis/redisfunc"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/redis/shardlock"
)

// redisTarget is how the command reaches Redis.
type redisTarget struct {
	client  conn.ClientOptions
	tls     tlsfiles.Files
	secrets *redisflags.Secrets
}

func (a *app) functionsCommand() *cobra.Command {
	var to redisTarget
	var load, prune bool
	var show string
	cmd := &cobra.Command{
		Use: "functions", Short: "Print or load the functions that nodes call with --redis-functions", Args: noArgs,
		Long: "Scheduler nodes that run with --redis-functions call functions in place of sending scripts, so that " +
			"their\n" +
			"Redis user needs no EVAL. The functions are those of this version: load them before nodes of it " +
			"start.\n\n" +
			"Without flags it names the libraries. --show prints one of them, for `redis-cli -x FUNCTION LOAD`; --load\n" +
			"brings them to every primary that lacks them, as the user of `fermata redis acl --loader`; --prune also\n" +
			"deletes those of other versions, when no node of them is left.\n\n" +
			"The flags of Redis can also be set by the environment (--redis-url is FERMATA_REDIS_URL).",
		Example: "  fermata redis functions --load --redis-url rediss://redis:6379 --redis-username loader " +
			"--redis-password-file password\n" +
			"  fermata redis functions --show store | redis-cli -x FUNCTION LOAD",
		RunE: func(cmd *cobra.Command, _ []string) error {
			libraries := map[string]redisfunc.Library{"store": redisstore.Library(), "locks": shardlock.Library()}
			list := []redisfunc.Library{libraries["store"], libraries["locks"]}
			switch {
			case load || prune:
				if err := config.LoadFlags(cmd.LocalNonPersistentFlags(), "FERMATA"); err != nil {
					return newUsageError(err)
				}
				return a.loadFunctions(cmd.Context(), &to, list, prune)
			case show != "":
				l, ok := libraries[show]
				if !ok {
					return usageErrorf("--show %q: want store or locks", show)
				}
				return a.println(strings.TrimSuffix(l.Code, "\n"))
			}
			for _, l := range list {
				if err := a.println(l.Name); err != nil {
					return err
				}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.BoolVar(&load, "load", false, "load the libraries where they are missing")
	f.BoolVar(&prune, "prune", false, "load, and delete the libraries of other versions")
	f.StringVar(&show, "show", "", "print a library: store or locks")
	to.secrets = redisflags.Add(f, &to.client, &to.tls)
	cmd.MarkFlagsMutuallyExclusive("load", "show")
	cmd.MarkFlagsMutuallyExclusive("prune", "show")
	return cmd
}

func (a *app) loadFunctions(ctx context.Context, to *redisTarget, list []redisfunc.Library, prune bool) error {
	if err := to.secrets.Read(); err != nil {
		return newUsageError(err)
	}
	if to.tls != (tlsfiles.Files{}) {
		source, err := tlsfiles.Open(tlsfiles.Options{
			Files: to.tls, Called: tlsfiles.Files{Cert: "--redis-tls-cert", Key: "--redis-tls-key",
				Authorities: "--redis-tls-ca"},
		})
		if err != nil {
			return newUsageError(err)
		}
		to.client.TLS = source.ClientConfig
	}
	to.client.ClientName = "fermata-functions"
	c, err := conn.NewClient(to.client)
	if err != nil {
		return newUsageError(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	servers, err := redisstore.LoadLibraries(ctx, c, list, prune)
	for _, s := range servers {
		what := "has them already"
		if len(s.Loaded) > 0 {
			what = "loaded " + strings.Join(s.Loaded, ", ")
		}
		if len(s.Deleted) > 0 {
			what += "; deleted " + strings.Join(s.Deleted, ", ")
		}
		if err == nil || len(s.Loaded)+len(s.Deleted) > 0 {
			if printed := a.println(s.Server + ": " + what); printed != nil {
				return printed
			}
		}
	}
	if err != nil {
		return fmt.Errorf("the functions are not on every primary: %w", err)
	}
	return nil
}
