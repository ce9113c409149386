package backoff

import "time"

// foreignPresets returns the curves of systems that users come from: their defaults,
// where they have any. The fourth powers of Sidekiq, asynq, Faktory, Hangfire and
// River are none of ours, nor are lists of waits.
func foreignPresets() []Preset {
	none := Jitter{Kind: JitterNone}
	return []Preset{
		{
			Name:        "cloud-tasks",
			Source:      "100ms, 16 doublings, then equal steps, at most 1h, 100 attempts",
			Description: "Google Cloud Tasks' default retry configuration.",
			KnownAs: []string{"Google Cloud Tasks: RetryConfig of a new queue (there retries end only when " +
				"attempts and duration are both spent)"},
			Retry: &Retry{
				Strategy: Exponential, Base: 100 * time.Millisecond, Multiplier: 2, MaxDoublings: 16,
				MaxDelay: time.Hour, MaxAttempts: 100, Jitter: none,
			},
		},
		{
			Name:        "cloud-scheduler",
			Source:      "5s, 5 doublings, then equal steps, at most 1h, 5 retries",
			Description: "Google Cloud Scheduler's default curve with the most retries it allows.",
			KnownAs:     []string{"Google Cloud Scheduler: retryConfig with retryCount 5"},
			Retry: &Retry{
				Strategy: Exponential, Base: 5 * time.Second, Multiplier: 2, MaxDoublings: 5,
				MaxDelay: time.Hour, MaxAttempts: 6, Jitter: none,
			},
		},
		{
			Name:        "kubernetes-job",
			Source:      "min(10s * 2^(n-1), 6m), 6 retries",
			Description: "Pod failures of a Kubernetes Job with the default backoffLimit.",
			KnownAs:     []string{"Kubernetes Job: backoffLimit 6"},
			Retry: &Retry{
				Strategy: Exponential, Base: 10 * time.Second, Multiplier: 2,
				MaxDelay: 6 * time.Minute, MaxAttempts: 7, Jitter: none,
			},
		},
		{
			Name:   "temporal-activity",
			Source: "min(1s * 2^(n-1), 100s), 1000 attempts",
			Description: "Temporal's default retry policy of an activity; unlimited there, here the most attempts " +
				"that a run can have.",
			KnownAs: []string{"Temporal: RetryPolicy unset (initial_interval 1 s, backoff_coefficient 2, " +
				"maximum_interval 100 x initial)"},
			Retry: &Retry{
				Strategy: Exponential, Base: time.Second, Multiplier: 2,
				MaxDelay: 100 * time.Second, MaxAttempts: MaxAttempts, Jitter: none,
			},
		},
		{
			Name:        "aws-full-jitter",
			Source:      "random(0, min(1s * 2^(n-1), 20s)), 3 attempts",
			Description: "Full jitter as in the standard retry mode of AWS SDKs; two retries.",
			KnownAs: []string{
				"AWS SDK for Rust, botocore: retry_mode standard",
				"AWS Architecture Blog: full jitter, base 1 s, cap 20 s",
			},
			Retry: &Retry{
				Strategy: Exponential, Base: time.Second, Multiplier: 2,
				MaxDelay: 20 * time.Second, MaxAttempts: 3, Jitter: Jitter{Kind: JitterFull},
			},
		},
		{
			Name:   "celery",
			Source: "random(0, min(1s * 2^retries, 600s)), 3 retries",
			Description: "Celery's automatic retries with backoff: doubles from 1 s, at most ten minutes, full " +
				"jitter; three retries.",
			KnownAs: []string{"Celery: autoretry_for with retry_backoff=True (there whole seconds are drawn)"},
			Retry: &Retry{
				Strategy: Exponential, Base: time.Second, Multiplier: 2,
				MaxDelay: 600 * time.Second, MaxAttempts: 4, Jitter: Jitter{Kind: JitterFull},
			},
		},
		{
			Name:        "jobrunr",
			Source:      "3^n s, 10 retries",
			Description: "JobRunr's default: trebles from 3 s up to 16.4 h; ten retries. No jitter.",
			KnownAs:     []string{"JobRunr: RetryFilter with its defaults"},
			Retry: &Retry{
				Strategy: Exponential, Base: time.Second, Multiplier: 3, Offset: 1,
				MaxDelay: 24 * time.Hour, MaxAttempts: 11, Jitter: none,
			},
		},
		{
			Name:        "dapr-job",
			Source:      "1s, 3 retries",
			Description: "Dapr's default failure policy of a job: a second between four attempts. No jitter.",
			KnownAs: []string{"Dapr: job without a failure policy",
				"go-etcd-cron: constant failure policy, 1 s, 3 retries"},
			Retry: &Retry{
				Strategy: Fixed, Base: time.Second, Multiplier: 2,
				MaxDelay: 30 * time.Second, MaxAttempts: 4, Jitter: none,
			},
		},
	}
}
