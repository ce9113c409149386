package admission

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// queueSettings has the settings of all queues that have any. The map is not changed.
type queueSettings map[job.QueueKey]job.QueueSettings

// settingsOf returns the settings of a queue; zero for most.
func (a *Admission) settingsOf(q job.QueueKey) job.QueueSettings {
	if s := a.settings.Load(); s != nil && len(*s) > 0 {
		return (*s)[q]
	}
	return job.QueueSettings{}
}

// QueueSettings returns the settings of all queues that have any, as this node read them last:
// within the last period while they can be read. The map must not be changed. It is nil
// before they are known.
func (a *Admission) QueueSettings() map[job.QueueKey]job.QueueSettings {
	if s := a.settings.Load(); s != nil {
		return *s
	}
	return nil
}

// settingsRest bounds how often changes of settings are read. After a read that took t, the next
// one begins settingsRest * t later at the earliest, so that reading takes a tenth of the time at most.
const settingsRest = 9

// SettingsChanged makes the settings of queues be read soon. It does not block.
func (a *Admission) SettingsChanged() { wakeUp(a.settingsWake) }

// settingsLoop reads the settings of queues, once a period and after they changed. While they cannot be read, the
// last ones apply.
func (a *Admission) settingsLoop() {
	timer := time.NewTimer(a.o.Refresh)
	defer timer.Stop()
	failing := false
	for {
		began := time.Now()
		err := a.readSettings()
		took := time.Since(began)
		rested := began.Add(min((1+settingsRest)*took, a.o.Refresh))
		switch {
		case err != nil && !failing && a.ctx.Err() == nil:
			a.o.Logger.Warn("failed to read queue settings, keeping the last ones", "error", err)
		case err == nil && failing:
			a.o.Logger.Info("reading queue settings succeeds again")
		}
		failing = err != nil
		timer.Reset(a.o.Alignment.UntilNext(time.Now(), a.o.Refresh))
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
	a.endPauses(ctx, read)
	before := a.settings.Load()
	now := queueSettings(read)
	a.settings.Store(&now)
	if before == nil {
		before = &queueSettings{}
	}
	for q, s := range *before {
		if now[q] != s {
			a.reportRoom(q)
		}
		if s.Paused && !now[q].Paused {
			a.o.OnPaused(q, false)
		}
	}
	a.mu.Lock()
	maps.DeleteFunc(a.mu.lastRoomChange, func(q job.QueueKey, _ uint64) bool { _, limited := now[q]; return !limited })
	a.mu.Unlock()
	for q, s := range now {
		if s.Paused && !(*before)[q].Paused {
			a.o.OnPaused(q, true)
		}
	}
	return nil
}

// maxPauseEnds bounds how many queues a node resumes after one read: the rest follow a period later.
const maxPauseEnds = 100

// endPauses resumes the queues whose pause has ended, in what was read and in Redis. Every node does it, and the first
// one has an effect. Until Redis has stored it, the next read begins with the pause again; nodes of earlier versions
// know no end of a pause, and follow what is stored.
func (a *Admission) endPauses(ctx context.Context, read map[job.QueueKey]job.QueueSettings) {
	var now unixtime.Milli
	ended := 0
	for q, s := range read {
		if !s.Paused || s.PauseUntilMS == 0 || ended == maxPauseEnds {
			continue
		}
		if now == 0 {
			clock, err := a.o.Store.Now(ctx, job.PauseClockShard)
			if err != nil {
				a.logFailure("clock of pauses", err)
				return
			}
			now = clock
		}
		if !s.PauseEnded(now) {
			continue
		}
		ended++
		switch err := a.o.Limits.SwapQueueSettings(ctx, q, s, s.Resumed(), ""); {
		case err == nil:
			a.o.Logger.Info("queue resumed at the end of its pause", "namespace", q.Namespace, "queue", q.Queue)
			read[q] = s.Resumed()
		case !errors.Is(err, job.ErrSettingsChanged):
			a.logFailure("end pause", err)
		}
	}
}
