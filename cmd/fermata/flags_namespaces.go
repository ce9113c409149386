package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/client"
)

// allNamespacesFlag defines -A, which means the same of all commands. --all, which some
// commands had for it, is still accepted.
func allNamespacesFlag(cmd *cobra.Command, p *bool, value bool, help string) {
	cmd.Flags().BoolVarP(p, "all-namespaces", "A", value, help)
	cmd.Flags().BoolVar(p, "all", value, help)
	_ = cmd.Flags().MarkHidden("all") // it is there
}

// eachNamespaceFlag defines -A for a command that did not have --all for it.
func eachNamespaceFlag(cmd *cobra.Command, p *bool) {
	cmd.Flags().BoolVarP(p, "all-namespaces", "A", false, "of all namespaces that the caller may see")
}

// inNamespaces returns the results of ask for the client's namespace, or with all, for every namespace that the
// caller may see.
func inNamespaces[T any](ctx context.Context, a *app, c *client.Client, all bool,
	ask func(context.Context, *client.Client) ([]T, error)) ([]T, error) {
	if !all {
		return ask(ctx, c)
	}
	names, err := a.visibleNamespaces(ctx, c)
	if err != nil {
		return nil, err
	}
	return collectFromEach(ctx, c, names, ask)
}

// askOnce is inNamespaces for a call that covers all namespaces at once. A caller without permission for that
// gets the results for the namespaces of its roles.
func askOnce[T any](ctx context.Context, a *app, c *client.Client, all bool,
	ask func(ctx context.Context, c *client.Client, all bool) ([]T, error)) ([]T, error) {
	found, err := ask(ctx, c, all)
	if !all || status.Code(err) != codes.PermissionDenied {
		return found, err
	}
	names := a.namespacesOfRoles(ctx, c)
	if len(names) == 0 {
		return nil, err
	}
	return collectFromEach(ctx, c, names, func(ctx context.Context, c *client.Client) ([]T,
		error) {
		return ask(ctx, c, false)
	})
}

// collectFromEach queries one namespace after the other. Namespaces that the caller may not read are left out,
// unless all are refused.
func collectFromEach[T any](ctx context.Context, c *client.Client, names []string,
	ask func(context.Context, *client.Client) ([]T, error)) (all []T, err error) {
	var denied error
	answered := len(names) == 0
	for _, name := range names {
		found, err := ask(ctx, c.InNamespace(name))
		switch {
		case status.Code(err) == codes.PermissionDenied:
			denied = err
			continue
		case err != nil:
			return nil, err
		}
		answered = true
		all = append(all, found...)
	}
	if !answered {
		return nil, denied
	}
	return all, nil
}

// visibleNamespaces returns the namespaces that have jobs, sorted. If the caller may not list them, it returns
// those of its roles.
func (a *app) visibleNamespaces(ctx context.Context, c *client.Client) ([]string, error) {
	queues, err := c.Admin().Queues(ctx, client.QueuesOptions{AllNamespaces: true})
	if status.Code(err) == codes.PermissionDenied {
		if names := a.namespacesOfRoles(ctx, c); len(names) > 0 {
			return names, nil
		}
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, q := range queues {
		names = append(names, q.GetNamespace())
	}
	return sortedSet(names), nil
}

// namespacesOfRoles returns the namespaces named by the caller's roles. Namespaces that match only a pattern are
// unknown; a note is printed for them.
func (a *app) namespacesOfRoles(ctx context.Context, c *client.Client) (names []string) {
	who, err := c.WhoAmI(ctx)
	if err != nil {
		return nil // a node of the previous version does not know the call; report the refusal
	}
	var patterns []string
	for _, grant := range who.GetGrants() {
		for _, name := range grant.GetNamespaces() {
			if strings.HasSuffix(name, "*") {
				patterns = append(patterns, name)
			} else {
				names = append(names, name)
			}
		}
	}
	if len(patterns) > 0 && a.err != nil {
		fmt.Fprintf(a.err, "note: your roles name namespaces by a pattern (%s), so the namespaces are unknown: "+
			"select one with --namespace\n",
			printableText(strings.Join(sortedSet(patterns), ", ")))
	}
	return sortedSet(names)
}

func sortedSet(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}
