package convert

import (
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func QueueSettingsFromPB(p *fermatav1.QueueSettings) job.QueueSettings {
	settings := job.QueueSettings{
		MaxConcurrency: int(p.GetMaxConcurrency()), Rate: p.GetRate(), Burst: int(p.GetBurst()),
		RecoveryRate: p.GetRecoveryRate(), Paused: p.GetPaused(),
	}
	if t := p.GetPauseUntilTime(); t.IsValid() && settings.Paused {
		settings.PauseUntilMS = unixtime.MilliOf(t.AsTime())
	}
	if settings.RecoveryRate == job.DefaultRecoveryRate {
		// So that settings which limit nothing are none.
		settings.RecoveryRate = 0
	}
	return settings
}

func QueueSettingsToPB(q job.QueueKey, s job.QueueSettings) *fermatav1.QueueSettings {
	p := &fermatav1.QueueSettings{
		Name: queueName(q), MaxConcurrency: int32(s.MaxConcurrency), Rate: s.Rate, Burst: int32(s.Burst),
		RecoveryRate: s.RecoveryRate, Paused: &s.Paused, PauseUntilTime: MillisToPB(s.PauseUntilMS),
	}
	if p.RecoveryRate == 0 {
		p.RecoveryRate = job.DefaultRecoveryRate
	}
	return p
}
