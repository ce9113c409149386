package audittrail

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fermata-io/fermata/internal/core/job"
)

// trailGauges show the chain and the exports, as of the last look.
type trailGauges struct {
	setBacks, unverifiedEnds    prometheus.Counter
	records, bytes              prometheus.Gauge
	lag, waitingRecords, missed *prometheus.GaugeVec
}

func newGauges() trailGauges {
	vector := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"export"})
	}
	return trailGauges{
		setBacks: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fermata_audit_rollbacks_total", Help: "Times that the audit chain in Redis ended " +
				"before a record that this node had seen."}),
		unverifiedEnds: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fermata_audit_unverified_ends_total", Help: "Times that the audit chain in Redis ended " +
				"with a record that no key of this node had signed."}),
		records: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fermata_audit_stored_records", Help: "Audit records in Redis."}),
		bytes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fermata_audit_stored_bytes", Help: "Approximate size of the audit records in Redis, in " +
				"bytes."}),
		lag: vector("fermata_audit_export_lag_seconds", "Time that the oldest audit record has waited "+
			"for an export to acknowledge it."),
		waitingRecords: vector("fermata_audit_export_waiting_records", "Audit records that an export has not "+
			"acknowledged."),
		missed: vector("fermata_audit_export_missing_records", "Audit records that were removed before an "+
			"export had acknowledged them."),
	}
}

func (g trailGauges) collectors() []prometheus.Collector {
	return []prometheus.Collector{g.setBacks, g.unverifiedEnds, g.records, g.bytes, g.lag, g.waitingRecords, g.missed}
}

func (g trailGauges) update(state job.TrailState, exports []job.TrailExport) {
	count, bytes := countKept(state)
	g.records.Set(float64(count))
	g.bytes.Set(float64(bytes))
	for _, v := range []*prometheus.GaugeVec{g.lag, g.waitingRecords, g.missed} {
		v.Reset() // exports may have been deleted
	}
	for _, e := range exports {
		lag := 0.0
		if e.Waiting > 0 && e.SinceMS > 0 {
			lag = max(0, float64(state.NowMS-e.SinceMS)/1000)
		}
		g.lag.WithLabelValues(e.Name).Set(lag)
		g.waitingRecords.WithLabelValues(e.Name).Set(float64(e.Waiting))
		g.missed.WithLabelValues(e.Name).Set(float64(countMissed(e, state)))
	}
}
