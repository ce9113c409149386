package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/client"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func (a *app) clusterCommand() *cobra.Command {
	cluster := &cobra.Command{Use: "cluster", Short: "Show the state of the cluster", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cluster.AddCommand(
		listCommand(a, "nodes", "Show the members of the cluster",
			a.listNodes, a.nodeTable),
		listCommand(a, "shards", "Show shards with their holders and lag",
			func(ctx context.Context, c *client.Client) ([]*fermatav1.Shard, error) { return c.Admin().Shards(ctx) },
			a.shardTable),
		a.listQueuesCommand("queues"),
		listCommand(a, "workers", "Show connected workers",
			func(ctx context.Context, c *client.Client) ([]*fermatav1.Worker, error) {
				return c.Admin().Workers(ctx)
			},
			a.workerTable),
		a.checkCommand(), a.tryCommand(),
	)
	return cluster
}

func (a *app) listQueuesCommand(use string) *cobra.Command {
	all := false
	cmd := listCommand(a, use, "Show queues: waiting runs, live runs, and workers",
		func(ctx context.Context, c *client.Client) ([]*fermatav1.Queue, error) {
			return askOnce(ctx, a, c, all, queuesOf)
		}, func(queues []*fermatav1.Queue) outputTable { return a.queueTable(queues).dropNamespaceFirst(!all) })
	allNamespacesFlag(cmd, &all, false, "of all namespaces")
	return cmd
}

func queuesOf(ctx context.Context, c *client.Client, all bool) ([]*fermatav1.Queue, error) {
	return c.Admin().Queues(ctx, client.QueuesOptions{AllNamespaces: all})
}

// listCommand returns a command that lists objects of the cluster.
func listCommand[M proto.Message](a *app, use, short string,
	list func(context.Context, *client.Client) ([]M, error), table func([]M) outputTable,
) *cobra.Command {
	return registerList(a, &cobra.Command{
		Use: use, Short: short, Args: noArgs,
		RunE: printFetchedList(a, table, list),
	}, table)
}

// listNodes returns the members, and writes a line about each lost node to stderr.
func (a *app) listNodes(ctx context.Context, c *client.Client) ([]*fermatav1.Node, error) {
	members, lost, err := c.Admin().NodesWithLost(ctx)
	for _, n := range lost {
		fmt.Fprintf(a.err, "%s disappeared %s ago without leaving (%s)\n", printableText(n.GetName()),
			a.ageText(n.GetLostTime()), printableText(n.GetGrpcAddress()))
	}
	return members, err
}

func (a *app) nodeTable(nodes []*fermatav1.Node) outputTable {
	t := outputTable{heading: []string{"NODE", "STATE", "SHARDS", "WORKERS", "GRPC", "PEER", "DURABILITY", "VERSION",
		"UP"}, empty: "no nodes",
		leadingColumns: []string{"PEER", "DURABILITY", "VERSION", "UP", "GRPC", "WORKERS"}}
	for _, n := range nodes {
		state := "serving"
		switch {
		case n.GetUnreachable():
			state = "unreachable"
		case n.GetDraining():
			state = "draining"
		}
		t.addRow(printableText(n.GetName()), state, fmt.Sprint(n.GetShardsHeld()), fmt.Sprint(n.GetWorkers()),
			nameText(n.GetGrpcAddress()),
			nameText(n.GetPeerAddress()), fullText(n.GetDurability()), fullText(n.GetVersion()),
			a.ageText(n.GetStartTime()))
	}
	return t
}

func (a *app) shardTable(shards []*fermatav1.Shard) outputTable {
	t := outputTable{heading: []string{"SHARD", "HOLDER", "LOCK TTL", "JOBS", "LAG"}, empty: "no shards",
		leadingColumns: []string{"LOCK TTL", "JOBS"}}
	for _, s := range shards {
		t.addRow(fmt.Sprint(s.GetShard()), nameText(s.GetHolder()), durationPBText(s.GetLockTtl()),
			fmt.Sprint(s.GetJobs()), durationPBText(s.GetLag()))
	}
	return t
}

func (a *app) queueTable(queues []*fermatav1.Queue) outputTable {
	t := outputTable{
		heading: []string{"NAMESPACE", "QUEUE", "STATE", "BACKLOG", "OLDEST", "RUNNING", "SCHEDULED", "PAUSED",
			"DEAD", "FREE SLOTS", "WORKERS"},
		empty:          "no queues",
		leadingColumns: []string{"SCHEDULED", "WORKERS", "PAUSED", "DEAD", "OLDEST", "FREE SLOTS", "NAMESPACE"},
	}
	for _, q := range queues {
		state := "serving"
		if q.GetQueuePaused() {
			state = "paused"
		}
		t.addRow(q.GetNamespace(), q.GetQueue(), state, fmt.Sprint(q.GetBacklog()),
			durationPBText(q.GetOldestOverdue()), fmt.Sprint(q.GetRunning()),
			fmt.Sprint(q.GetScheduled()), fmt.Sprint(q.GetPaused()), fmt.Sprint(q.GetDead()),
			fmt.Sprint(q.GetFreeSlots()), fmt.Sprint(q.GetWorkers()))
	}
	return t
}

func (a *app) workerTable(workers []*fermatav1.Worker) outputTable {
	t := outputTable{heading: []string{"WORKER", "NODE", "NAMESPACE", "IDENTITY", "QUEUES", "RUNNING", "STATE",
		"VERSION", "CONNECTED"}, empty: "no workers",
		leadingColumns: []string{"VERSION", "IDENTITY", "CONNECTED", "NODE", "NAMESPACE", "QUEUES"}}
	for _, w := range workers {
		state := "serving"
		if w.GetDraining() {
			state = "draining"
		}
		t.addRow(nameText(w.GetWorkerId()), nameText(w.GetNode()), w.GetNamespace(), nameText(w.GetIdentity()),
			nameText(strings.Join(w.GetQueues(), ",")),
			fmt.Sprintf("%d/%d", w.GetRunning(), w.GetSlots()), state, fullText(w.GetVersion()),
			a.ageText(w.GetConnectTime()))
	}
	return t
}
