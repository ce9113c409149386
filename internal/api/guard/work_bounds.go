package guard

import (
	"fmt"
	"slices"

	"google.golang.org/grpc"

	"github.com/fermata-io/fermata/proto/externalscaler"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// workBound is what bounds the work that one call of a method makes, beside the size of its request.
// The rates of callers bound how many calls there are. The values are their own documentation, in
// docs/security/access.md.
type workBound string

const (
	// ownState: the answer is made of what the node has in memory.
	ownState workBound = "what the node has in memory"
	// oneJob: the call reads or changes one job. How much work its schedule makes was bounded
	// when it was registered.
	oneJob workBound = "one job, its runs, and a bounded number of searches in its schedule"
	// storedRevisions: the call reads what is kept of one job.
	storedRevisions workBound = "the revisions of one job: up to 51, of 256 KiB together and a definition"
	// wholeJob: the call copies what is stored of one job.
	wholeJob workBound = "one job with its history, dead letters and revisions, read and written a few times"
	// scheduleWork: the schedules of the call share one budget.
	scheduleWork workBound = "up to 1,000 jobs, whose schedules share 500,000 steps"
	// searchedTimes: a search for times, which ends with what it has found.
	searchedTimes workBound = "up to 1,000 times, found within 500,000 steps"
	// countedTimes: the times of a range are counted before a job takes it.
	countedTimes workBound = "one job, and a range of up to 10,000 times"
	// forecastWork: what nodes have in memory, and reads that are paid from an allowance.
	forecastWork workBound = "a million steps in the schedules of each node, " +
		"series of up to 1,000 queues, and reads within a share of a core"
	// scannedPage: a page that ends early. It reads lanes that it selects, and no others.
	scannedPage workBound = "a page: up to 1,000 entries, 5,000 looked at, 2 MiB, 50 ms, " +
		"20,000 lanes of those that it selects"
	// runsOrPage: the runs of one job, or a page of those of all jobs.
	runsOrPage workBound = "one job and its runs, or a page as of ListJobs and the queues with unsuccessful runs"
	// adminPage: what is kept is bounded, and the call reads no more of it than it may return, of each part.
	adminPage workBound = "up to 1,000 entries of what is kept, for administrators of the cluster"
	// timedPart: a page of changes that ends early.
	timedPart workBound = "up to 500 jobs found as by a page, changed for 500 ms"
	// wholeTable: the call reads a table that has a bound of its own.
	wholeTable workBound = "a table of bounded size"
	// wholeCluster: the work grows with the cluster, and not with jobs.
	wholeCluster workBound = "nodes and workers of the cluster"
	// sharedCounts: lanes of all namespaces are listed once for all callers, those of one are counted once.
	sharedCounts workBound = "the lanes of the namespaces of the caller, counted once for all callers; " +
		"nodes and workers of the cluster"
	// worstJobs: the indexes are read once for all callers.
	worstJobs workBound = "up to 1,000 entries of rankings, 5,000 lanes and 6 MiB of payloads"
	// oneShard: one of the shards; for administrators of the cluster.
	oneShard workBound = "all records of one shard, for administrators of the cluster"
	// longStream: a stream has places, and its own bounds of messages.
	longStream workBound = "a place of bounded number, and messages within the caller's limits"
)

// workBounds has a row for each method that a server may register. NewServer refuses one without a
// row, so that nothing is reachable whose work nobody has thought about.
var workBounds = map[string]workBound{
	fermatav1.JobService_GetJob_FullMethodName:            oneJob,
	fermatav1.JobService_ListRuns_FullMethodName:          runsOrPage,
	fermatav1.JobService_GetRun_FullMethodName:            oneJob,
	fermatav1.JobService_ExplainJob_FullMethodName:        oneJob,
	fermatav1.JobService_UpdateJob_FullMethodName:         oneJob,
	fermatav1.JobService_DeleteJob_FullMethodName:         oneJob,
	fermatav1.JobService_PauseJob_FullMethodName:          oneJob,
	fermatav1.JobService_ResumeJob_FullMethodName:         oneJob,
	fermatav1.JobService_RunJob_FullMethodName:            oneJob,
	fermatav1.JobService_RunJobWithPayload_FullMethodName: oneJob,
	fermatav1.JobService_CancelRun_FullMethodName:         oneJob,
	fermatav1.JobService_HintJob_FullMethodName:           oneJob,
	fermatav1.JobService_CancelBackfill_FullMethodName:    oneJob,
	fermatav1.JobService_DiscardDeadLetter_FullMethodName: oneJob,

	fermatav1.JobService_ListJobRevisions_FullMethodName:   storedRevisions,
	fermatav1.JobService_GetJobRevision_FullMethodName:     storedRevisions,
	fermatav1.JobService_DiffJobRevisions_FullMethodName:   storedRevisions,
	fermatav1.JobService_RestoreJobRevision_FullMethodName: storedRevisions,
	fermatav1.JobService_RenameJob_FullMethodName:          wholeJob,

	fermatav1.JobService_CreateJob_FullMethodName:       scheduleWork,
	fermatav1.JobService_BatchCreateJobs_FullMethodName: scheduleWork,
	fermatav1.JobService_PlanJobs_FullMethodName:        scheduleWork,
	fermatav1.JobService_ApplyJobs_FullMethodName:       scheduleWork,
	fermatav1.BackupService_RestoreJobs_FullMethodName:  scheduleWork,

	fermatav1.JobService_PreviewSchedule_FullMethodName: searchedTimes,
	fermatav1.JobService_BackfillJob_FullMethodName:     countedTimes,

	fermatav1.JobService_ListJobs_FullMethodName:                scannedPage,
	fermatav1.JobService_ListUpcomingJobs_FullMethodName:        scannedPage,
	fermatav1.JobService_ListDeadLetters_FullMethodName:         scannedPage,
	fermatav1.JobService_ListTargets_FullMethodName:             scannedPage,
	fermatav1.JobService_ListLocks_FullMethodName:               scannedPage,
	fermatav1.JobService_ProbeTarget_FullMethodName:             scannedPage,
	fermatav1.BackupService_ExportJobs_FullMethodName:           scannedPage,
	fermatav1.ClusterService_ListAuditRecords_FullMethodName:    scannedPage,
	fermatav1.ClusterService_ReadAuditRecords_FullMethodName:    adminPage,
	fermatav1.EventService_ListUndeliveredEvents_FullMethodName: adminPage,

	fermatav1.JobService_PauseJobs_FullMethodName:              timedPart,
	fermatav1.JobService_ResumeJobs_FullMethodName:             timedPart,
	fermatav1.JobService_RedriveDeadLetters_FullMethodName:     timedPart,
	fermatav1.JobService_ResetTarget_FullMethodName:            timedPart,
	fermatav1.JobService_BulkPauseJobs_FullMethodName:          timedPart,
	fermatav1.JobService_BulkResumeJobs_FullMethodName:         timedPart,
	fermatav1.JobService_BulkRunJobs_FullMethodName:            timedPart,
	fermatav1.JobService_BulkCancelRuns_FullMethodName:         timedPart,
	fermatav1.JobService_BulkDeleteJobs_FullMethodName:         timedPart,
	fermatav1.JobService_BulkRedriveDeadLetters_FullMethodName: timedPart,
	fermatav1.JobService_BulkDiscardDeadLetters_FullMethodName: timedPart,

	fermatav1.JobService_TopJobs_FullMethodName: worstJobs,

	fermatav1.JobService_GetQueueSettings_FullMethodName:            wholeTable,
	fermatav1.JobService_UpdateQueueSettings_FullMethodName:         wholeTable,
	fermatav1.JobService_PauseQueue_FullMethodName:                  wholeTable,
	fermatav1.EventService_ListWebhooks_FullMethodName:              wholeTable,
	fermatav1.EventService_RedeliverEvents_FullMethodName:           wholeTable,
	fermatav1.ClusterService_ListAuditExports_FullMethodName:        wholeTable,
	fermatav1.ClusterService_AcknowledgeAuditRecords_FullMethodName: wholeTable,
	fermatav1.ClusterService_DeleteAuditExport_FullMethodName:       wholeTable,
	externalscaler.ExternalScaler_IsActive_FullMethodName:           wholeTable,
	externalscaler.ExternalScaler_GetMetrics_FullMethodName:         wholeTable,

	fermatav1.ClusterService_ListQueues_FullMethodName:     sharedCounts,
	fermatav1.ClusterService_ListShards_FullMethodName:     sharedCounts,
	fermatav1.ClusterService_ListNamespaces_FullMethodName: sharedCounts,
	fermatav1.ClusterService_ListNodes_FullMethodName:      wholeCluster,
	fermatav1.ClusterService_ListWorkers_FullMethodName:    wholeCluster,
	fermatav1.ClusterService_CheckShard_FullMethodName:     oneShard,

	fermatav1.ClusterService_ForecastLoad_FullMethodName: forecastWork,
	fermatav1.PeerService_ForecastShards_FullMethodName:  forecastWork,

	fermatav1.JobService_ListPresets_FullMethodName:            ownState,
	fermatav1.AccessService_WhoAmI_FullMethodName:              ownState,
	fermatav1.PeerService_DescribeNode_FullMethodName:          ownState,
	externalscaler.ExternalScaler_GetMetricSpec_FullMethodName: ownState,
	"/grpc.health.v1.Health/Check":                             ownState,
	"/grpc.health.v1.Health/List":                              ownState,

	fermatav1.EventService_WatchEvents_FullMethodName:                longStream,
	externalscaler.ExternalScaler_StreamIsActive_FullMethodName:      longStream,
	fermatav1.WorkerService_Work_FullMethodName:                      longStream,
	fermatav1.PeerService_Link_FullMethodName:                        longStream,
	"/grpc.health.v1.Health/Watch":                                   longStream,
	"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo":      longStream,
	"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": longStream,
}

// checkWorkBounds fails for a registered method without a row.
func checkWorkBounds(services map[string]grpc.ServiceInfo) error {
	var missing []string
	for name, service := range services {
		for _, m := range service.Methods {
			if method := "/" + name + "/" + m.Name; workBounds[method] == "" {
				missing = append(missing, method)
			}
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return fmt.Errorf("rpc: no bound of work is decided for %v", missing)
	}
	return nil
}
