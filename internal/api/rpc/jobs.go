package rpc

import (
	"context"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// Jobs is the engine that manages jobs. Each service sees only the part that it uses.
type Jobs interface {
	JobDefinitions
	JobOperations
	JobQueries
	JobRuns
	DeadLetters
	QueueSettings
	SharedGates
	JobBackups
	JobRevisions
	JobRenames
	BulkChanges
}

// BulkChanges changes all jobs, or dead letters, that match a filter.
type BulkChanges interface {
	ChangeMatching(ctx context.Context, q job.BulkRequest) (job.BulkPage, error)
}

// JobDefinitions registers, reads, changes and deletes jobs.
type JobDefinitions interface {
	Create(ctx context.Context, d job.Definition, requestID string) (job.Record, error)
	CreateBatch(ctx context.Context, requests []job.CreateRequest) []job.CreateAnswer
	Get(ctx context.Context, key job.Key) (job.Record, error)
	List(ctx context.Context, f job.Filter, pageSize int, token string) (job.Page, error)
	// FindVisibleJobs returns which of these jobs the caller may see.
	FindVisibleJobs(ctx context.Context, keys []job.Key) (map[job.Key]bool, error)
	Update(ctx context.Context, u job.UpdateRequest) (job.Record, error)
	Delete(ctx context.Context, key job.Key, etag string) error

	// PlanJobs computes what Apply would do, and stores nothing.
	PlanJobs(ctx context.Context, desired []job.DesiredJob, force bool) []job.ApplyResult
	ApplyJobs(ctx context.Context, desired []job.DesiredJob, force bool) []job.ApplyResult
}

// JobOperations change when jobs run, without changing their definitions.
type JobOperations interface {
	Pause(ctx context.Context, key job.Key, note string) (job.Record, error)
	// Resume ends a pause. With catchUp the scheduled times that passed meanwhile go to the misfire policy.
	Resume(ctx context.Context, key job.Key, catchUp bool) (job.Record, error)
	PauseAll(ctx context.Context, f job.Filter, note, token string) (job.Bulk, error)
	ResumeAll(ctx context.Context, f job.Filter, note string, catchUp bool, token string) (job.Bulk, error)
	// Hint stores a hint. A hint without a source removes the stored one.
	Hint(ctx context.Context, key job.Key, h job.Hint) (job.Record, error)
	Backfill(ctx context.Context, key job.Key, q job.BackfillRequest) (job.Record, error)
	CancelBackfill(ctx context.Context, key job.Key, id string) (job.Record, error)
}

// JobQueries answer questions about jobs and schedules.
type JobQueries interface {
	Explain(ctx context.Context, key job.Key) (job.ExplainedJob, error)
	Preview(ctx context.Context, p job.PreviewRequest) (job.Preview, error)
	// ListUpcoming lists the planned runs that are due next.
	ListUpcoming(ctx context.Context, q job.UpcomingQuery) (job.UpcomingPage, error)
	// TopJobs lists the latest or most often failing jobs, the worst first.
	TopJobs(ctx context.Context, q job.TopQuery) (job.TopList, error)
}

// JobRuns starts, reads and cancels runs.
type JobRuns interface {
	RunJob(ctx context.Context, key job.Key, q job.RequestManualRun) (v job.RunView, joined bool, err error)
	RunJobWithPayload(ctx context.Context, key job.Key, q job.RunWithPayloadRequest) (job.RunView, error)
	ListRuns(ctx context.Context, key job.Key) ([]job.RunView, error)
	// RecentRuns returns the latest runs of each of these jobs that its history keeps, the last end first.
	RecentRuns(ctx context.Context, records []job.Record, most int) ([][]job.Run, error)
	// ListEndedRuns lists runs of all jobs that ended, the last end first.
	ListEndedRuns(ctx context.Context, q job.EndedRunsQuery) (job.EndedRunsPage, error)
	GetRun(ctx context.Context, key job.Key, runID string) (job.RunView, error)
	CancelRun(ctx context.Context, key job.Key, runID string) (job.RunView, error)
}

// DeadLetters lists, redrives and discards dead letters.
type DeadLetters interface {
	ListDeadLetters(ctx context.Context, f job.Filter, pageSize int, token string) (job.DeadLetterPage, error)
	RedriveDeadLetters(ctx context.Context, q job.RedriveRequest) (job.Bulk, error)
	// DiscardDeadLetter deletes the dead letter of a run.
	DiscardDeadLetter(ctx context.Context, record job.RecordID, runID string) error
}

// SharedGates shows what jobs share, and ends waits for it.
type SharedGates interface {
	ListTargets(ctx context.Context, f job.Filter, pageSize int, token string) (job.TargetPage, error)
	ProbeTarget(ctx context.Context, namespace, target string) (job.ReleasedRuns, error)
	ResetTarget(ctx context.Context, namespace, target, token string) (job.ReleasedRuns, error)
	ListLocks(ctx context.Context, f job.Filter, pageSize int, token string) (job.LockPage, error)
}

// QueueSettings reads and changes the settings of queues.
type QueueSettings interface {
	QueueSettings(ctx context.Context, q job.QueueKey) (job.QueueSettings, error)
	// SetQueueSettings returns the new settings.
	SetQueueSettings(ctx context.Context, q job.QueueKey, c job.QueueChange) (job.QueueSettings, error)
	// PauseQueue pauses a queue until an instant; 0: until it is resumed.
	PauseQueue(ctx context.Context, q job.QueueKey, until unixtime.Milli) (job.QueueSettings, error)
}

// JobBackups exports jobs with their checkpoints and restores them.
type JobBackups interface {
	ExportJobs(ctx context.Context, f job.Filter, pageSize int, token string) (job.BackupPage, error)
	Restore(ctx context.Context, backups []job.Backup, existing job.Existing) []job.RestoreAnswer
}
