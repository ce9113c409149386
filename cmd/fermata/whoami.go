package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fermata-io/fermata/client"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func (a *app) whoamiCommand() *cobra.Command {
	return &cobra.Command{
		Use: "whoami", Short: "Show your identity in the cluster, and your permissions", Args: noArgs,
		Long: "Show the identity that a node derives from the token or certificate of this command, when that " +
			"credential\n" +
			"ends, the roles of the identity by namespace and queue, and its limits.",
		RunE: printFetched(a, a.showIdentity,
			func(ctx context.Context, c *client.Client, _ []string) (*client.Identity, error) {
				return c.WhoAmI(ctx)
			}),
	}
}

// showIdentity prints the answer of WhoAmI.
func (a *app) showIdentity(w *fermatav1.WhoAmIResponse) error {
	t := outputTable{heading: []string{"IDENTITY", printableText(w.GetIdentity())}}
	t.addRow("AUTHENTICATED", authenticationText(w.GetAuthentication()))
	for _, g := range w.GetGroups() {
		t.addRow("GROUP", printableText(g))
	}
	t.addRow("EXPIRES", a.expiryText(w))
	t.addRow("LIMITS", limitsText(w.GetLimits()))
	for _, n := range w.GetNamespaces() {
		if n.GetJobs() > 0 {
			t.addRow("JOBS", fmt.Sprintf("at most %d in namespace %s", n.GetJobs(), printableText(n.GetNamespace())))
		}
		if n.GetJobBytes() > 0 {
			t.addRow("JOB BYTES", fmt.Sprintf("at most %d in namespace %s", n.GetJobBytes(),
				printableText(n.GetNamespace())))
		}
	}
	if w.GetNode() != "" {
		t.addRow("NODE", printableText(w.GetNode()))
	}
	if err := a.printTable(t); err != nil {
		return err
	}
	if w.GetAuthentication() == fermatav1.WhoAmIResponse_AUTHENTICATION_NONE {
		return a.println("The node does not authenticate callers: everybody may do anything.")
	}
	if err := a.println(""); err != nil {
		return err
	}
	if err := a.grantTable(w.GetGrants()); err != nil || len(w.GetGrants()) > 0 {
		return err
	}
	_, err := fmt.Fprintf(a.err, "hint: ask for a rule in the nodes' access file that names %s%s\n",
		printableText(w.GetIdentity()), groupsText(w.GetGroups()))
	return err
}

func groupsText(groups []string) string {
	if len(groups) == 0 {
		return ""
	}
	return ", or a group of it"
}

func (a *app) grantTable(grants []*fermatav1.RoleGrant) error {
	t := outputTable{heading: []string{"ROLE", "NAMESPACES", "QUEUES"}, empty: "no roles"}
	for _, g := range grants {
		queues := "*"
		if len(g.GetQueues()) > 0 {
			queues = strings.Join(g.GetQueues(), ",")
		}
		t.addRow(printableText(g.GetRole()), printableText(strings.Join(g.GetNamespaces(), ",")), printableText(queues))
	}
	return a.printTable(t)
}

func authenticationText(p fermatav1.WhoAmIResponse_Authentication) string {
	switch p {
	case fermatav1.WhoAmIResponse_AUTHENTICATION_NONE:
		return "no"
	case fermatav1.WhoAmIResponse_AUTHENTICATION_TOKEN:
		return "by a static token"
	case fermatav1.WhoAmIResponse_AUTHENTICATION_CERTIFICATE:
		return "by a certificate"
	case fermatav1.WhoAmIResponse_AUTHENTICATION_JWT:
		return "by a JWT"
	}
	return noValue
}

func (a *app) expiryText(w *fermatav1.WhoAmIResponse) string {
	if w.GetExpireTime() == nil {
		return "never"
	}
	end := w.GetExpireTime().AsTime()
	return fmt.Sprintf("%s (in %s)", end.UTC().Format(time.RFC3339), durationText(max(0, end.Sub(a.now()))))
}

func limitsText(l *fermatav1.CallLimits) string {
	var parts []string
	if l.GetRate() > 0 {
		parts = append(parts, fmt.Sprintf("%s calls/s, burst %d", strconv.FormatFloat(l.GetRate(), 'g', -1, 64),
			l.GetBurst()))
	}
	if l.GetCalls() > 0 {
		parts = append(parts, fmt.Sprintf("%d open calls", l.GetCalls()))
	}
	if l.GetConnections() > 0 {
		parts = append(parts, fmt.Sprintf("%d connections", l.GetConnections()))
	}
	if len(parts) == 0 {
		return noValue
	}
	return strings.Join(parts, ", ")
}
