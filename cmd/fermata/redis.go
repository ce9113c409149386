package main

import (
	"github.com/spf13/cobra"

	"github.com/fermata-io/fermata/internal/cli/config"
	"github.com/fermata-io/fermata/internal/redis/redisacl"
)

func (a *app) redisCommand() *cobra.Command {
	redis := &cobra.Command{Use: "redis", Short: "Help with the Redis of a cluster", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	redis.AddCommand(a.aclCommand(), a.functionsCommand())
	return redis
}

func (a *app) aclCommand() *cobra.Command {
	var keyspace, user, passwordFile string
	var sentinel, functions, loader, shared bool
	cmd := &cobra.Command{
		Use: "acl", Short: "Print the Redis user that scheduler nodes need", Args: noArgs,
		Long: "Print the line of an ACL file, or of redis.conf, for the user of the scheduler nodes: single " +
			"commands on the\n" +
			"keys of one keyspace and nothing else. With --functions, for nodes that run with --redis-functions; " +
			"with\n" +
			"--loader, the line of the user that loads those functions; with --sentinel, that for the Sentinel " +
			"processes.\n" +
			"With --shared, for a Redis that others use too: without ACL DRYRUN, by which a user learns what users " +
			"there are\n" +
			"and what each may do. Nodes ask by it whether Redis can load its append-only file; without it, look " +
			"yourself.\n" +
			"Turn the default user off by \"" + redisacl.DefaultUser + "\": \"user default off\" alone takes its " +
			"rights as well, without\n" +
			"which Redis loses at its next start what scripts have written. The command calls no cluster.",
		Example: `  fermata redis acl --keyspace fermata --user fermata --password-file redis-password >> users.acl
  fermata redis acl --functions --keyspace fermata --user fermata --password-file redis-password >> users.acl
  fermata redis acl --sentinel`,
		RunE: func(*cobra.Command, []string) error {
			if err := redisacl.CheckKeyspace(keyspace); err != nil {
				return usageErrorf("--keyspace: %v", err)
			}
			if err := redisacl.CheckUser(user); err != nil {
				return usageErrorf("--user: %v", err)
			}
			hash := "<SHA-256 of the password, in hexadecimal>"
			if passwordFile != "" {
				password, err := config.ReadSecretFile(passwordFile)
				if err != nil {
					return newUsageError(err)
				}
				hash = redisacl.HashPassword(password)
			}
			rules := redisacl.UserRules(keyspace, functions)
			switch {
			case shared:
				rules = redisacl.SharedRules(keyspace, functions)
			case sentinel:
				rules = redisacl.SentinelRules()
			case loader:
				rules = redisacl.LoaderRules()
			}
			return a.println(redisacl.User(user, hash, rules))
		},
	}
	cmd.Flags().StringVar(&keyspace, "keyspace", "fermata", "keyspace of the cluster")
	cmd.Flags().StringVar(&user, "user", "fermata", "name of the user")
	cmd.Flags().StringVar(&passwordFile, "password-file", "", "file with the password, whose hash is printed")
	cmd.Flags().BoolVar(&functions, "functions", false, "for nodes that run with --redis-functions: without EVAL")
	cmd.Flags().BoolVar(&loader, "loader", false, "print the user that loads the functions instead")
	cmd.Flags().BoolVar(&sentinel, "sentinel", false, "print the user of Sentinel instead")
	cmd.Flags().BoolVar(&shared, "shared", false, "for a Redis that others use too: without ACL DRYRUN")
	cmd.MarkFlagsMutuallyExclusive("sentinel", "loader", "functions")
	cmd.MarkFlagsMutuallyExclusive("sentinel", "loader", "shared")
	return cmd
}
