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

// inNamespaces gathers what ask finds in the namespace of the client, or with all in every
// namespace that the caller may see.
func inNamespaces[T any](ctx context.Context, a *app, c *client.Client, all bool, ask func(context.Context, *client.Client) ([]T, error)) ([]T, error) {
	if !all {
		return ask(ctx, c)
	}
	names, err := a.visibleNamespaces(ctx, c)
	if err != nil {
		return nil, err
	}
	return collectFromEach(ctx, c, names, ask)
}

// askOnce is ofNamespaces for a call that nodes answer of all namespaces together. A caller who
// may not ask that gets the answers of the namespaces of its roles.
func askOnce[T any](ctx context.Context, a *app, c *client.Client, all bool, ask func(ctx context.Context, c *client.Client, all bool) ([]T, error)) ([]T, error) {
	found, err := ask(ctx, c, all)
	if !all || status.Code(err) != codes.PermissionDenied {
		return found, err
	}
	names := a.namespacesOfRoles(ctx, c)
	if len(names) == 0 {
		return nil, err
	}
	return collectFromEach(ctx, c, names, func(ctx context.Context, c *client.Client) ([]T, error) { return ask(ctx, c, false) })
}

// collectFromEach asks of one namespace after the other. Those of which the caller may not ask are left out,
// unless they are all.
func collectFromEach[T any](ctx context.Context, c *client.Client, names []string, ask func(context.Context, *client.Client) ([]T, error)) (all []T, err error) {
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

// visibleNamespaces lists the namespaces that have jobs, in order. Of a caller who may not list them it
// lists those of its roles.
func (a *app) visibleNamespaces(ctx context.Context, c *client.Client) ([]string, error) {
	queues, err := c.Queues(ctx, true)
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

// namespacesOfRoles are the namespaces that the roles of the caller name. Those that a pattern stands
// for are not known; a note says so.
func (a *app) namespacesOfRoles(ctx context.Context, c *client.Client) (names []string) {
	who, err := c.WhoAmI(ctx)
	if err != nil {
		return nil // a node of a version before does not say; the refusal stands
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
		fmt.Fprintf(a.err, "note: your roles name namespaces by a pattern (%s), which does not say which there are: name one by --namespace\n",
			printableText(strings.Join(sortedSet(patterns), ", ")))
	}
	return sortedSet(names)
}

func sortedSet(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}
