package convert

import (
	"crypto/sha256"

	"google.golang.org/protobuf/proto"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

var canonical = proto.MarshalOptions{Deterministic: true}

// MessageDigest is the SHA-256 of a message's canonical bytes.
func MessageDigest(m proto.Message) []byte {
	b, err := canonical.Marshal(m)
	if err != nil {
		return nil // text that is no UTF-8: there is nothing to compare with
	}
	sum := sha256.Sum256(b)
	return sum[:]
}

// DefinitionDigest is the digest of what clients set of a job, and its name.
func DefinitionDigest(p *fermatav1.Job) []byte {
	if p == nil {
		return nil
	}
	// What is set is shared with p, not copied: it is only read.
	d := &fermatav1.Job{
		Name: p.Name, Queue: p.Queue, Priority: p.Priority, Handler: p.Handler, Labels: p.Labels, Target: p.Target,
		Payload: p.Payload, PayloadKeyId: p.PayloadKeyId, PayloadSize: p.PayloadSize,
		Schedule: p.Schedule, MisfirePolicy: p.MisfirePolicy, MaxLag: p.MaxLag,
		RetryPolicy: retryWithoutSources(p.RetryPolicy), BackoffPolicy: backoffWithoutSources(p.BackoffPolicy),
		Timeout: p.Timeout, TimeoutGrace: p.TimeoutGrace, PauseAfterFailures: p.PauseAfterFailures,
		HistoryLimit: p.HistoryLimit, Retention: p.Retention, DeadLetterTtl: p.DeadLetterTtl,
		OverlapPolicy: p.OverlapPolicy, OverlapLimit: p.OverlapLimit, Locks: p.Locks,
	}
	if d.PayloadKeyId != "" {
		d.Payload = nil // answers do not have it
	}
	return MessageDigest(d)
}

// retryWithoutSources returns a policy without the sources of its values. It shares all else with p.
func retryWithoutSources(p *fermatav1.RetryPolicy) *fermatav1.RetryPolicy {
	if len(p.GetSources()) == 0 {
		return p
	}
	return &fermatav1.RetryPolicy{
		Preset: p.Preset, Strategy: p.Strategy, BaseDelay: p.BaseDelay, Multiplier: p.Multiplier,
		ExponentOffset: p.ExponentOffset, MaxDoublings: p.MaxDoublings, MaxDelay: p.MaxDelay,
		MaxAttempts: p.MaxAttempts, MaxElapsed: p.MaxElapsed, Jitter: p.Jitter,
	}
}

// backoffWithoutSources is retryWithoutSources for the backoff of schedules.
func backoffWithoutSources(p *fermatav1.BackoffPolicy) *fermatav1.BackoffPolicy {
	if len(p.GetSources()) == 0 {
		return p
	}
	return &fermatav1.BackoffPolicy{
		Preset: p.Preset, Disabled: p.Disabled, Multiplier: p.Multiplier, MaxExponent: p.MaxExponent,
		MaxDelay: p.MaxDelay, MaxRatio: p.MaxRatio, Jitter: p.Jitter,
		StaleAfter: p.StaleAfter, StaleHalve: p.StaleHalve,
		MinInterval: p.MinInterval, MaxInterval: p.MaxInterval, WithinPeriod: p.WithinPeriod,
	}
}

// StatusDigest is the digest of a job's state.
func StatusDigest(p *fermatav1.Job) []byte {
	if p.GetStatus() == nil {
		return nil
	}
	return MessageDigest(p.GetStatus())
}
