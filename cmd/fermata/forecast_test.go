package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	core "github.com/fermata-io/fermata/internal/core/forecast"
	"github.com/fermata-io/fermata/internal/engine/forecast"
)

// ForecastLoad reads the whole store.
func (v view) ForecastLoad(ctx context.Context, q core.Query, covers func(queue string) bool) (core.Gathered, error) {
	held := make([]int, v.store.Shards())
	for i := range held {
		held[i] = i
	}
	f, err := forecast.New(forecast.Options{
		Store: v.store, Shards: len(held), Held: func() []int { return held },
		Now: func() time.Time { return q.NowMS.Time() },
	})
	if err != nil {
		return core.Gathered{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); _ = f.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	answer, err := f.Query(ctx, q)
	return core.Gather(q, []core.Answer{answer}, len(held), covers), err
}

func TestForecast(t *testing.T) {
	c := startCluster(t)
	none := c.script("forecast")
	for i := range 12 {
		c.must("jobs", "create", fmt.Sprintf("nightly-%02d", i), "--cron", "0 2 * * *", "--handler", "h", "--queue", "mail")
		c.must("jobs", "create", fmt.Sprintf("spread-%02d", i), "--cron", "H H * * *", "--handler", "h")
	}
	c.must("jobs", "create", "often", "--every", "10m", "--handler", "h", "--jitter", "none")
	c.must("jobs", "create", "delayed", "--every", "20m", "--fixed-delay", "--handler", "h", "--jitter", "none")
	c.must("--namespace", "other", "jobs", "create", "hourly", "--cron", "0 * * * *", "--handler", "h")
	golden(t, "forecast", none+c.script(
		"forecast --herd-jobs 10",
		"forecast --queue mail --horizon 2h --resolution 30m",
		"forecast --all-namespaces --horizon 3h",
		"forecast --queue mail --horizon 14h30m --herd-jobs 10 -o json",
		"forecast --horizon 25h",
		"forecast --resolution 90s",
		"forecast --herd-jobs 1",
	))
}
