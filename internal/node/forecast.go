package node

import (
	"context"

	core "github.com/fermata-io/fermata/internal/core/forecast"
	"github.com/fermata-io/fermata/internal/engine/forecast"
)

func (n *Node) buildForecaster(context.Context) (err error) {
	n.forecaster, err = forecast.New(forecast.Options{
		Store: n.clientStore, Held: n.heldShards, Shards: n.cfg.Shards, Nodes: n.countNodes, Now: n.currentTime,
		Logger: n.cfg.Logger, Registerer: n.cfg.Registerer,
	})
	return err
}

// countNodes returns the number of nodes of the cluster, this one included.
func (n *Node) countNodes() int { return 1 + len(n.knownMembers()) }

// forecastShards answers peers, and the clients of this node.
func (n *Node) forecastShards(ctx context.Context, q core.Query) (core.Answer, error) {
	return n.forecaster.Query(ctx, q)
}

// ForecastLoad gathers the forecasts of all nodes. Each has a part of the jobs of a herd: what is a part is decided
// here, when they are added up.
func (v clusterView) ForecastLoad(ctx context.Context, q core.Query,
	covers func(queue string) bool) (core.Gathered, error) {
	asked := q
	asked.NowMS = 0 // so that all who ask within a second share the answers of the nodes
	if nodes := v.countNodes(); nodes > 1 {
		asked.HerdJobs = max(2, q.HerdJobs/int64(2*nodes))
	}
	peers := make(chan []core.Answer, 1)
	go func() { peers <- v.peers.ForecastAll(ctx, asked) }()
	own, err := v.forecastShards(ctx, asked)
	answers := append(<-peers, own)
	if err != nil {
		return core.Gathered{}, err
	}
	return core.Gather(q, answers, v.cfg.Shards, covers), nil
}
