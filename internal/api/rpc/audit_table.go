package rpc

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fermata-io/fermata/internal/api/convert"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/jobfilter"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// auditRule describes how calls of a method that changes something are recorded.
type auditRule struct {
	// readsOnly reports whether a request changes nothing after all. May be nil.
	readsOnly func(proto.Message) bool
	// jobName names the job whose digest is taken before the call. Nil takes none.
	jobName func(proto.Message) string
	digest  func(*fermatav1.Job) []byte
	// options are the fields of a request that decide what a call changes, and that fill does not record.
	options []protoreflect.Name
	// changedName names what a call about many has changed. Nil: fill does.
	changedName func(job.BulkTarget) string
	// fill completes a record; the answer is nil where the call failed.
	fill func(r *job.TrailRecord, q, answer proto.Message)
}

// auditRules are all methods that change something. A test compares them, and onlyRead,
// with the descriptors of the services.
var auditRules = map[string]auditRule{
	fermatav1.JobService_CreateJob_FullMethodName: {fill: typedFill(func(r *job.TrailRecord, q *fermatav1.CreateJobRequest, a *fermatav1.Job) {
		r.Resource, r.After = a.GetName(), convert.DefinitionDigest(a)
		if a == nil {
			r.Resource = q.GetParent() + "/jobs/" + q.GetJobId()
		}
	})},
	fermatav1.JobService_BatchCreateJobs_FullMethodName: {fill: typedFill(recordBatchCreated)},
	fermatav1.JobService_ApplyJobs_FullMethodName:       {fill: typedFill(recordApplied)},
	fermatav1.JobService_UpdateJob_FullMethodName: {fill: typedFill(func(r *job.TrailRecord, q *fermatav1.UpdateJobRequest, a *fermatav1.Job) {
		// The fields that the edit changed take their place, if the node has merged it.
		r.Resource, r.Fields, r.After = q.GetJob().GetName(), sortedPaths(q.GetUpdateMask()), convert.DefinitionDigest(a)
		if a != nil {
			r.Fields = []string{"repeated=true"}
		}
		addRevisionName(r, a)
	})},
	fermatav1.JobService_RestoreJobRevision_FullMethodName: {
		jobName: jobOfRevision, digest: convert.DefinitionDigest,
		fill: typedFill(func(r *job.TrailRecord, q *fermatav1.RestoreJobRevisionRequest, a *fermatav1.Job) {
			r.Resource, r.After = jobOfRevision(q), convert.DefinitionDigest(a)
			r.Fields = []string{"from=" + q.GetName()[strings.LastIndexByte(q.GetName(), '/')+1:]}
			addRevisionName(r, a)
		}),
	},
	fermatav1.JobService_RenameJob_FullMethodName: {
		jobName: requestName, digest: convert.DefinitionDigest,
		fill: typedFill(func(r *job.TrailRecord, q *fermatav1.RenameJobRequest, a *fermatav1.Job) {
			r.Resource, r.After = q.GetName(), convert.DefinitionDigest(a)
			r.Fields = []string{"new_id=" + q.GetNewId()}
			if a != nil {
				r.Names = append(r.Names, a.GetName())
			}
		}),
	},
	fermatav1.JobService_DeleteJob_FullMethodName:      {jobName: requestName, digest: convert.DefinitionDigest, fill: recordName},
	fermatav1.JobService_PauseJob_FullMethodName:       stateChange("note"),
	fermatav1.JobService_ResumeJob_FullMethodName:      stateChange("catch_up"),
	fermatav1.JobService_HintJob_FullMethodName:        stateChange("hint"),
	fermatav1.JobService_BackfillJob_FullMethodName:    stateChange("start_time", "end_time", "overlap_policy"),
	fermatav1.JobService_CancelBackfill_FullMethodName: stateChange("backfill_id"),
	fermatav1.JobService_RunJob_FullMethodName: {options: []protoreflect.Name{"backoff", "ignore_exclusions"}, fill: typedFill(func(r *job.TrailRecord, q *fermatav1.RunJobRequest, a *fermatav1.RunJobResponse) {
		r.Resource = q.GetName()
		if a != nil {
			r.Names, r.After = []string{a.GetRun().GetName()}, convert.MessageDigest(a.GetRun())
		}
	})},
	fermatav1.JobService_RunJobWithPayload_FullMethodName: {options: []protoreflect.Name{"ignore_exclusions"}, fill: typedFill(func(r *job.TrailRecord, q *fermatav1.RunJobWithPayloadRequest, a *fermatav1.Run) {
		r.Resource = q.GetName()
		if a != nil {
			r.Names, r.After = []string{a.GetName()}, convert.MessageDigest(a)
			r.Fields = []string{fmt.Sprintf("payload_size=%d", a.GetOwnPayload().GetSize()),
				"payload_sha256=" + hex.EncodeToString(a.GetOwnPayload().GetSha256())}
		}
	})},
	fermatav1.JobService_CancelRun_FullMethodName: {fill: typedFill(func(r *job.TrailRecord, q *fermatav1.CancelRunRequest, a *fermatav1.Run) {
		r.Resource = q.GetName()
		if a != nil {
			r.After = convert.MessageDigest(a)
		}
	})},
	fermatav1.JobService_PauseJobs_FullMethodName: {
		options: []protoreflect.Name{"note", "queue", "id_prefix", "labels"}, changedName: jobOfTarget,
		fill: typedFill(func(r *job.TrailRecord, q *fermatav1.PauseJobsRequest, a *fermatav1.PauseJobsResponse) {
			r.Resource, r.Changed = q.GetParent(), int64(a.GetPaused())
		}),
	},
	fermatav1.JobService_ResumeJobs_FullMethodName: {
		options: []protoreflect.Name{"note", "catch_up", "queue", "id_prefix", "labels"}, changedName: jobOfTarget,
		fill: typedFill(func(r *job.TrailRecord, q *fermatav1.ResumeJobsRequest, a *fermatav1.ResumeJobsResponse) {
			r.Resource, r.Changed = q.GetParent(), int64(a.GetResumed())
		}),
	},
	fermatav1.JobService_RedriveDeadLetters_FullMethodName: {
		readsOnly:   func(q proto.Message) bool { return q.(*fermatav1.RedriveDeadLettersRequest).GetDryRun() },
		options:     []protoreflect.Name{"ignore_exclusions", "queue", "id_prefix", "labels"},
		changedName: func(t job.BulkTarget) string { return convert.DeadLetterName(t.Record) },
		fill: typedFill(func(r *job.TrailRecord, q *fermatav1.RedriveDeadLettersRequest, a *fermatav1.RedriveDeadLettersResponse) {
			r.Resource, r.Changed, r.Refused = q.GetParent(), int64(a.GetRedriven()), int64(a.GetRefused())
			if a == nil && len(q.GetNames()) <= maxBatch {
				r.Names = q.GetNames() // any of them may be redriven
			}
		}),
	},
	fermatav1.JobService_DiscardDeadLetter_FullMethodName: {fill: typedFill(func(r *job.TrailRecord, q *fermatav1.DiscardDeadLetterRequest, _ *emptypb.Empty) {
		r.Resource, r.Fields = q.GetName(), []string{"run_id=" + q.GetRunId()}
	})},
	fermatav1.JobService_ProbeTarget_FullMethodName: {fill: typedFill(func(r *job.TrailRecord, q *fermatav1.ProbeTargetRequest, a *fermatav1.ProbeTargetResponse) {
		r.Resource = q.GetParent() + "/targets/" + q.GetTarget()
		if a.GetJob() != "" {
			r.Names, r.Changed = []string{a.GetJob()}, 1
		}
	})},
	fermatav1.JobService_ResetTarget_FullMethodName: {fill: typedFill(func(r *job.TrailRecord, q *fermatav1.ResetTargetRequest, a *fermatav1.ResetTargetResponse) {
		r.Resource, r.Changed = q.GetParent()+"/targets/"+q.GetTarget(), int64(a.GetReleased())
	})},
	fermatav1.JobService_BulkPauseJobs_FullMethodName:          bulkChange(job.BulkPauseJobs, "note"),
	fermatav1.JobService_BulkResumeJobs_FullMethodName:         bulkChange(job.BulkResumeJobs, "pause_id", "catch_up"),
	fermatav1.JobService_BulkRunJobs_FullMethodName:            bulkChange(job.BulkRunJobs, "backoff", "ignore_exclusions"),
	fermatav1.JobService_BulkCancelRuns_FullMethodName:         bulkChange(job.BulkCancelRuns),
	fermatav1.JobService_BulkDeleteJobs_FullMethodName:         bulkChange(job.BulkDeleteJobs),
	fermatav1.JobService_BulkRedriveDeadLetters_FullMethodName: bulkChange(job.BulkRedriveDeadLetters, "ignore_exclusions"),
	fermatav1.JobService_BulkDiscardDeadLetters_FullMethodName: bulkChange(job.BulkDiscardDeadLetters),
	fermatav1.JobService_UpdateQueueSettings_FullMethodName: {fill: typedFill(func(r *job.TrailRecord, q *fermatav1.UpdateQueueSettingsRequest, a *fermatav1.QueueSettings) {
		r.Resource, r.Fields = q.GetSettings().GetName(), append(pauseChange(q), auditOptions(q.GetSettings(), limitOptions)...)
		if a != nil {
			r.After = convert.MessageDigest(a)
		}
	})},
	fermatav1.JobService_PauseQueue_FullMethodName: {fill: typedFill(func(r *job.TrailRecord, q *fermatav1.PauseQueueRequest, a *fermatav1.QueueSettings) {
		r.Resource, r.Fields = q.GetName(), []string{"paused=true"}
		if t := q.GetUntilTime(); t.IsValid() {
			r.Fields = append(r.Fields, "pause_until_time="+t.AsTime().Format(time.RFC3339Nano))
		}
		if a != nil {
			r.After = convert.MessageDigest(a)
		}
	})},
	fermatav1.BackupService_RestoreJobs_FullMethodName: {fill: typedFill(recordRestored)},
	fermatav1.EventService_RedeliverEvents_FullMethodName: {fill: typedFill(func(r *job.TrailRecord, q *fermatav1.RedeliverEventsRequest, a *fermatav1.RedeliverEventsResponse) {
		r.Resource, r.Changed, r.Refused = "webhooks/"+q.GetWebhook(), int64(a.GetDelivered()), int64(a.GetRefused())
		if q.GetDropRefused() {
			r.Fields = []string{"drop_refused=true"}
		}
		if q.GetEventId() != "" {
			r.Names = []string{"events/" + q.GetEventId()}
		}
	})},
	fermatav1.ClusterService_AcknowledgeAuditRecords_FullMethodName: {
		fill: typedFill(func(r *job.TrailRecord, q *fermatav1.AcknowledgeAuditRecordsRequest, _ *fermatav1.AuditExport) {
			r.Resource = "audit-exports/" + q.GetExport()
		}),
	},
	fermatav1.ClusterService_DeleteAuditExport_FullMethodName: {
		fill: typedFill(func(r *job.TrailRecord, q *fermatav1.DeleteAuditExportRequest, _ *fermatav1.DeleteAuditExportResponse) {
			r.Resource = "audit-exports/" + q.GetName()
		}),
	},
	fermatav1.ClusterService_CheckShard_FullMethodName: {
		readsOnly: func(q proto.Message) bool { return !q.(*fermatav1.CheckShardRequest).GetRepair() },
		fill: typedFill(func(r *job.TrailRecord, q *fermatav1.CheckShardRequest, a *fermatav1.CheckShardResponse) {
			r.Resource = "shards/" + strconv.Itoa(int(q.GetShard()))
			for _, f := range a.GetFindings() {
				if f.GetRepaired() {
					r.Changed, r.Names = r.Changed+1, append(r.Names, f.GetRecord())
				}
			}
		}),
	},
}

// readOnlyMethods are the other methods, which leave no record.
var readOnlyMethods = []string{
	fermatav1.JobService_GetJob_FullMethodName, fermatav1.JobService_ListJobs_FullMethodName,
	fermatav1.JobService_ListUpcomingJobs_FullMethodName, fermatav1.ClusterService_ListNamespaces_FullMethodName,
	fermatav1.JobService_ListRuns_FullMethodName, fermatav1.JobService_GetRun_FullMethodName,
	fermatav1.JobService_PreviewSchedule_FullMethodName, fermatav1.JobService_ListPresets_FullMethodName,
	fermatav1.JobService_PlanJobs_FullMethodName, fermatav1.JobService_ListJobRevisions_FullMethodName,
	fermatav1.JobService_GetJobRevision_FullMethodName, fermatav1.JobService_DiffJobRevisions_FullMethodName,
	fermatav1.JobService_ExplainJob_FullMethodName, fermatav1.JobService_TopJobs_FullMethodName,
	fermatav1.JobService_ListDeadLetters_FullMethodName,
	fermatav1.JobService_ListTargets_FullMethodName, fermatav1.JobService_ListLocks_FullMethodName,
	fermatav1.JobService_GetQueueSettings_FullMethodName, fermatav1.BackupService_ExportJobs_FullMethodName,
	fermatav1.ClusterService_ListNodes_FullMethodName, fermatav1.ClusterService_ListShards_FullMethodName,
	fermatav1.ClusterService_ListQueues_FullMethodName, fermatav1.ClusterService_ListWorkers_FullMethodName,
	fermatav1.ClusterService_ForecastLoad_FullMethodName,
	fermatav1.ClusterService_ListAuditRecords_FullMethodName, fermatav1.ClusterService_ReadAuditRecords_FullMethodName,
	fermatav1.ClusterService_ListAuditExports_FullMethodName,
	fermatav1.EventService_WatchEvents_FullMethodName, fermatav1.EventService_ListWebhooks_FullMethodName,
	fermatav1.EventService_ListUndeliveredEvents_FullMethodName, fermatav1.AccessService_WhoAmI_FullMethodName,
}

// limitOptions are the limits of a queue.
var limitOptions = []protoreflect.Name{"max_concurrency", "rate", "burst", "recovery_rate"}

// stateChange is a method that changes the state of one job and answers the job.
func stateChange(options ...protoreflect.Name) auditRule {
	return auditRule{options: options, jobName: requestName, digest: convert.StatusDigest,
		fill: func(r *job.TrailRecord, q, a proto.Message) {
			recordName(r, q, a)
			if p, ok := a.(*fermatav1.Job); ok {
				r.After = convert.StatusDigest(p)
			}
		}}
}

// jobOfRevision is the job of a request that names a revision.
func jobOfRevision(q proto.Message) string {
	name, _, _ := strings.Cut(requestName(q), "/revisions/")
	return name
}

// bulkChange is a method that changes a page of what matches a filter. The request id of the record is that of the
// change; the counts are those of the page, and Fields has the counts of the pages up to it.
func bulkChange(action job.BulkAction, options ...protoreflect.Name) auditRule {
	return auditRule{
		options:     options,
		changedName: func(t job.BulkTarget) string { return convert.BulkTargetName(action, t) },
		readsOnly:   func(q proto.Message) bool { return q.(bulkChangeRequest).GetDryRun() },
		fill: func(r *job.TrailRecord, q, answer proto.Message) {
			request := q.(bulkChangeRequest)
			r.Resource, r.Fields = request.GetParent(), auditFilter(request.GetFilter())
			a, ok := answer.(*fermatav1.BulkChangeResponse)
			if !ok {
				return
			}
			r.Changed = int64(a.GetChanged())
			for _, refusal := range a.GetRefusals() {
				r.Refused += int64(refusal.GetCount())
			}
			r.Fields = append(r.Fields, fmt.Sprintf("total_changed=%d", a.GetTotalChanged()),
				fmt.Sprintf("total_refused=%d", a.GetTotalRefused()))
		},
	}
}

func jobOfTarget(t job.BulkTarget) string { return convert.JobName(t.Record.Key()) }

// auditOptions returns the options of a request that are set, as "name=value"; entries of a map as "name.key=value".
func auditOptions(q proto.Message, options []protoreflect.Name) (fields []string) {
	m := q.ProtoReflect()
	for _, name := range options {
		field := m.Descriptor().Fields().ByName(name)
		if !m.Has(field) {
			continue
		}
		switch value := m.Get(field); {
		case field.IsMap() && value.Map().Len() > job.MaxTrailFields:
			fields = append(fields, fmt.Sprintf("%s=%d entries", name, value.Map().Len()))
		case field.IsMap():
			var entries []string
			value.Map().Range(func(key protoreflect.MapKey, entry protoreflect.Value) bool {
				entries = append(entries, fmt.Sprintf("%s.%s=%s", name, key, entry))
				return true
			})
			slices.Sort(entries)
			fields = append(fields, entries...)
		case field.Enum() != nil:
			fields = append(fields, fmt.Sprintf("%s=%s", name, enumText(field.Enum(), value.Enum())))
		case field.Message() != nil:
			fields = append(fields, fmt.Sprintf("%s=%s", name, messageText(value.Message().Interface())))
		default:
			fields = append(fields, fmt.Sprintf("%s=%v", name, value))
		}
	}
	return fields
}

// enumText returns the name of a value, or the number of one that has no name.
func enumText(enum protoreflect.EnumDescriptor, number protoreflect.EnumNumber) string {
	if value := enum.Values().ByNumber(number); value != nil {
		return string(value.Name())
	}
	return strconv.Itoa(int(number))
}

// messageText returns a time in the form of RFC 3339, and another message as JSON.
func messageText(m proto.Message) string {
	if t, ok := m.(*timestamppb.Timestamp); ok && t.IsValid() {
		return t.AsTime().Format(time.RFC3339Nano)
	}
	text, err := protojson.Marshal(m)
	var compact bytes.Buffer // protojson varies its spaces
	if err != nil || json.Compact(&compact, text) != nil {
		return "invalid"
	}
	return compact.String()
}

// auditFilter returns a filter in parts that records do not clip.
func auditFilter(filter string) (fields []string) {
	if len(filter) > jobfilter.MaxLength { // which is refused
		return []string{job.ClipWithDigest("filter="+filter[:jobfilter.MaxLength], job.MaxTrailText)}
	}
	name := "filter="
	for filter != "" {
		part := job.Clip(filter, job.MaxTrailText-len(name))
		fields, filter, name = append(fields, name+part), strings.TrimPrefix(filter, part), "filter+="
	}
	return fields
}

// maxRecordedPaths is more than the fields of a job.
const maxRecordedPaths = 1000

// sortedPaths are the paths of a mask, each once. A longer mask than any edit needs is cut.
func sortedPaths(mask *fieldmaskpb.FieldMask) []string {
	paths := mask.GetPaths()
	paths = paths[:min(len(paths), maxRecordedPaths)]
	return slices.Compact(slices.Sorted(slices.Values(paths)))
}

func requestName(q proto.Message) string { return q.(interface{ GetName() string }).GetName() }

func recordName(r *job.TrailRecord, q, _ proto.Message) { r.Resource = requestName(q) }

// typedFill is fill for the types of one method; the answer may be nil.
func typedFill[Q, A proto.Message](
	f func(*job.TrailRecord, Q, A),
) func(*job.TrailRecord, proto.Message, proto.Message) {
	return func(r *job.TrailRecord, q, answer proto.Message) {
		a, _ := answer.(A)
		f(r, q.(Q), a)
	}
}

func recordBatchCreated(r *job.TrailRecord, q *fermatav1.BatchCreateJobsRequest, a *fermatav1.BatchCreateJobsResponse) {
	r.Resource = q.GetParent()
	for _, result := range a.GetResults() {
		if result.GetCode() != 0 {
			r.Refused++
			continue
		}
		r.Changed, r.Names = r.Changed+1, append(r.Names, result.GetJob().GetName())
	}
}

func recordRestored(r *job.TrailRecord, q *fermatav1.RestoreJobsRequest, a *fermatav1.RestoreJobsResponse) {
	r.Resource, r.Fields = q.GetParent(), []string{q.GetExisting().String()}
	for i, result := range a.GetResults() {
		switch result.GetOutcome() {
		case fermatav1.RestoreJobsResponse_Result_OUTCOME_CREATED, fermatav1.RestoreJobsResponse_Result_OUTCOME_REPLACED:
			r.Changed++
			if i < len(q.GetJobs()) {
				r.Names = append(r.Names, q.GetParent()+"/jobs/"+convert.LastSegment(q.GetJobs()[i].GetJob().GetName()))
			}
		default:
			r.Refused++
		}
	}
}

// pauseChange is the changed field of a call that pauses or resumes a queue. Settings that repeat the expected ones
// change nothing.
func pauseChange(q *fermatav1.UpdateQueueSettingsRequest) []string {
	settings, seen := q.GetSettings(), q.GetExpected()
	paused := settings.GetPaused()
	if settings == nil || settings.Paused == nil || seen != nil && seen.GetPaused() == paused {
		return nil
	}
	return []string{fmt.Sprintf("paused=%v", paused)}
}
