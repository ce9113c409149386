package peer

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	links   *prometheus.GaugeVec
	sent    *prometheus.CounterVec
	dropped *prometheus.CounterVec
	refused prometheus.Counter
	cut     *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer, foreign func() float64) (*metrics, error) {
	m := &metrics{
		links: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "fermata_peer_links", Help: "Open links to other nodes, by direction.",
		}, []string{"direction"}),
		sent: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fermata_peer_messages_sent_total", Help: "Messages sent to other nodes.",
		}, []string{"kind"}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fermata_peer_messages_dropped_total",
			Help: "Messages that were not sent because there was no link, or its queue was full.",
		}, []string{"kind"}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fermata_peer_messages_refused_total", Help: "Invalid messages of other nodes.",
		}),
	}
	m.cut = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fermata_peer_messages_cut_total",
		Help: "Messages to other nodes that would have been too large, and lack queues, or labels, queues or workers.",
	}, []string{"kind"})
	for _, kind := range []string{"demand", "description"} {
		m.cut.WithLabelValues(kind)
	}
	for _, kind := range []string{"permit", "permit_result", "nudge", "cancel", "hand_over"} {
		m.dropped.WithLabelValues(kind) // there from the start, so that the first one shows
	}
	if r == nil {
		return m, nil
	}
	others := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "fermata_peers_of_another_keyspace",
		Help: "Live nodes that use another Redis, database or keyspace than this one.",
	}, foreign)
	for _, c := range []prometheus.Collector{m.links, m.sent, m.dropped, m.refused, m.cut, others} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("peer: %w", err)
		}
	}
	return m, nil
}
