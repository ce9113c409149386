package convert

import (
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
)

// stored is a job as it is stored.
func stored() job.Definition {
	d := job.WithDefaults(job.Definition{
		Key: key, Handler: "http", Payload: []byte("p"), Labels: map[string]string{"a": "b"},
		Schedule: schedule.Spec{Kind: schedule.KindInterval, Every: time.Minute},
	})
	d.Priority, d.HistoryLimit = 7, 3
	return d
}
