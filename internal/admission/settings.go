package admission

import (
	"context"
	"maps"
	"time"

	"github.com/fermata-io/fermata/internal/job"
)

// settings are those of all queues that have any. The map is not changed.
type settings map[job.QueueKey]job.QueueSettings

// queue is the settings of a queue; zero for most.
func (a *Admission) queue(q job.QueueKey) job.QueueSettings {
	if s := a.settings.Load(); s != nil && len(*s) > 0 {
		return (*s)[q]
	}
	return job.QueueSettings{}
}

// QueueSettings are the settings of all queues that have any, as this node read them last:
// within the last period while they can be read. Nobody may change the map. It is nil
// before they are known.
func (a *Admission) QueueSettings() map[job.QueueKey]job.QueueSettings {
	if s := a.settings.Load(); s != nil {
		return *s
	}
	return nil
}

// readRest is how many times as long as reading the settings of queues took a change of them
// waits before they are read again: who changes settings all the time has a node read them
// for a tenth of its time at most.
const readRest = 9

// SettingsChanged has the settings of queues read soon. It does not block.
func (a *Admission) SettingsChanged() { signal(a.settingsWake) }

// settingsLoop reads the settings of queues, once a period and after they changed.
// While they cannot be read those read last count.
func (a *Admission) settingsLoop() {
	timer := time.NewTimer(a.o.Refresh)
	defer timer.Stop()
	failing := false
	for {
		began := time.Now()
		err := a.readSettings()
		took := time.Since(began)
		rested := began.Add(min((1+readRest)*took, a.o.Refresh))
		switch {
		case err != nil && !failing && a.ctx.Err() == nil:
			a.o.Logger.Warn("settings of queues cannot be read; the last ones count", "error", err)
		case err == nil && failing:
			a.o.Logger.Info("settings of queues can be read again")
		}
		failing = err != nil
		timer.Reset(a.o.Cadence.Until(time.Now(), a.o.Refresh))
		select {
		case <-a.ctx.Done():
			return
		case <-timer.C:
		case <-a.settingsWake:
			timer.Reset(time.Until(rested))
			select {
			case <-a.ctx.Done():
				return
			case <-timer.C:
			}
		}
	}
}

func (a *Admission) readSettings() error {
	ctx, cancel := context.WithTimeout(a.ctx, a.o.callTimeout())
	defer cancel()
	read, err := a.o.Limits.QueueSettings(ctx)
	if err != nil {
		return err
	}
	before := a.settings.Load()
	now := settings(read)
	a.settings.Store(&now)
	if before == nil {
		before = &settings{}
	}
	for q, s := range *before {
		if now[q] != s {
			a.room(q)
		}
		if s.Paused && !now[q].Paused {
			a.o.OnPaused(q, false)
		}
	}
	a.mu.Lock()
	maps.DeleteFunc(a.mu.roomOf, func(q job.QueueKey, _ uint64) bool { _, limited := now[q]; return !limited })
	a.mu.Unlock()
	for q, s := range now {
		if s.Paused && !(*before)[q].Paused {
			a.o.OnPaused(q, true)
		}
	}
	return nil
}
