package guard

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc"

	"github.com/fermata-io/fermata/internal/api/convert"
	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/proto/externalscaler"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// methodPermission is what a method asks of its caller.
type methodPermission struct {
	permission authz.Permission
	// namespaceOf finds the namespace that a request is about, by the functions that the
	// handler reads it with, so that both mean the same. nil: it is about all.
	namespaceOf func(q any) (string, error)
	// open: callers need not be authenticated.
	open bool
	// decidedByHandler: the handler decides on the first message of the stream.
	decidedByHandler bool
	// queueRule is what holds for roles that are limited to queues.
	queueRule queueRule
	// spansNamespaces: the method takes convert.AnyNamespace for all namespaces in which the caller has the
	// permission, and leaves out of its answer what is of others.
	spansNamespaces bool
	// queuesOf finds the queues of a request of a method with namedQueues.
	queuesOf func(q any) ([]string, error)
}

// methodPermissions has a row for each method that a server may register. NewServer refuses
// one without a row, so that nothing is reachable that nobody has thought about.
//
// Batches name one namespace in parent; the handlers refuse items of another one. The queue rules are explained in
// role_scope.go; package rpc applies checkedQueues in its queue_scope.go.
var methodPermissions = map[string]methodPermission{
	fermatav1.JobService_GetJob_FullMethodName:           {permission: authz.ReadJobs, namespaceOf: namespaceOfJob((*fermatav1.GetJobRequest).GetName), queueRule: checkedQueues},
	fermatav1.JobService_ListJobs_FullMethodName:         {permission: authz.ReadJobs, namespaceOf: namespaceOfParent, spansNamespaces: true, queueRule: checkedQueues},
	fermatav1.JobService_ListUpcomingJobs_FullMethodName: {permission: authz.ReadJobs, namespaceOf: namespaceOfParent, spansNamespaces: true, queueRule: checkedQueues},
	fermatav1.JobService_ListRuns_FullMethodName:         {permission: authz.ReadJobs, namespaceOf: namespaceOfJobsParent, spansNamespaces: true, queueRule: checkedQueues},
	fermatav1.JobService_GetRun_FullMethodName:           {permission: authz.ReadJobs, namespaceOf: namespaceOfRun((*fermatav1.GetRunRequest).GetName), queueRule: checkedQueues},
	fermatav1.JobService_ExplainJob_FullMethodName:       {permission: authz.ReadJobs, namespaceOf: namespaceOfJob((*fermatav1.ExplainJobRequest).GetName), queueRule: checkedQueues},
	fermatav1.JobService_ListJobRevisions_FullMethodName: {permission: authz.ReadJobs, namespaceOf: namespaceOfJobIn("parent", (*fermatav1.ListJobRevisionsRequest).GetParent), queueRule: checkedQueues},
	fermatav1.JobService_GetJobRevision_FullMethodName:   {permission: authz.ReadJobs, namespaceOf: namespaceOfRevision((*fermatav1.GetJobRevisionRequest).GetName), queueRule: checkedQueues},
	fermatav1.JobService_DiffJobRevisions_FullMethodName: {permission: authz.ReadJobs, namespaceOf: namespaceOfJob((*fermatav1.DiffJobRevisionsRequest).GetName), queueRule: checkedQueues},
	fermatav1.JobService_ListDeadLetters_FullMethodName:  {permission: authz.ReadJobs, namespaceOf: namespaceOfParent, queueRule: checkedQueues},
	fermatav1.JobService_ListTargets_FullMethodName:      {permission: authz.ReadJobs, namespaceOf: namespaceOfParent, spansNamespaces: true, queueRule: checkedQueues},
	fermatav1.JobService_ListLocks_FullMethodName:        {permission: authz.ReadJobs, namespaceOf: namespaceOfParent, spansNamespaces: true, queueRule: checkedQueues},
	fermatav1.JobService_TopJobs_FullMethodName:          {permission: authz.ReadJobs, namespaceOf: namespaceOfOptionalParent, queueRule: checkedQueues},
	fermatav1.JobService_GetQueueSettings_FullMethodName: {permission: authz.ReadJobs, namespaceOf: namespaceOfQueue((*fermatav1.GetQueueSettingsRequest).GetName), queueRule: namedQueues, queuesOf: queuesOfGetSettings},
	fermatav1.JobService_PlanJobs_FullMethodName:         {permission: authz.ReadJobs, namespaceOf: namespaceOfParent, queueRule: checkedQueues},
	// These two return nothing that is stored, except for a preview that names a job: its handler requires the
	// permission to read that job. A preview costs CPU time, so it needs a role.
	fermatav1.JobService_PreviewSchedule_FullMethodName: {permission: authz.AnyRole, queueRule: checkedQueues},
	fermatav1.JobService_ListPresets_FullMethodName:     {permission: authz.Anyone, queueRule: allQueues},

	fermatav1.JobService_PauseJob_FullMethodName:           {permission: authz.OperateJobs, namespaceOf: namespaceOfJob((*fermatav1.PauseJobRequest).GetName), queueRule: checkedQueues},
	fermatav1.JobService_ResumeJob_FullMethodName:          {permission: authz.OperateJobs, namespaceOf: namespaceOfJob((*fermatav1.ResumeJobRequest).GetName), queueRule: checkedQueues},
	fermatav1.JobService_PauseJobs_FullMethodName:          {permission: authz.OperateJobs, namespaceOf: namespaceOfParent, queueRule: checkedQueues},
	fermatav1.JobService_ResumeJobs_FullMethodName:         {permission: authz.OperateJobs, namespaceOf: namespaceOfParent, queueRule: checkedQueues},
	fermatav1.JobService_RunJob_FullMethodName:             {permission: authz.OperateJobs, namespaceOf: namespaceOfJob((*fermatav1.RunJobRequest).GetName), queueRule: checkedQueues},
	fermatav1.JobService_CancelRun_FullMethodName:          {permission: authz.OperateJobs, namespaceOf: namespaceOfRun((*fermatav1.CancelRunRequest).GetName), queueRule: checkedQueues},
	fermatav1.JobService_HintJob_FullMethodName:            {permission: authz.OperateJobs, namespaceOf: namespaceOfJob((*fermatav1.HintJobRequest).GetName), queueRule: checkedQueues},
	fermatav1.JobService_BackfillJob_FullMethodName:        {permission: authz.OperateJobs, namespaceOf: namespaceOfJob((*fermatav1.BackfillJobRequest).GetName), queueRule: checkedQueues},
	fermatav1.JobService_CancelBackfill_FullMethodName:     {permission: authz.OperateJobs, namespaceOf: namespaceOfJob((*fermatav1.CancelBackfillRequest).GetName), queueRule: checkedQueues},
	fermatav1.JobService_RedriveDeadLetters_FullMethodName: {permission: authz.OperateJobs, namespaceOf: namespaceOfParent, queueRule: checkedQueues},
	// Jobs of all queues of a namespace may share a target.
	fermatav1.JobService_ProbeTarget_FullMethodName: {permission: authz.OperateJobs, namespaceOf: namespaceOfParent, queueRule: allQueues},
	fermatav1.JobService_ResetTarget_FullMethodName: {permission: authz.OperateJobs, namespaceOf: namespaceOfParent, queueRule: allQueues},

	// What is discarded cannot be had back, as what is deleted.
	fermatav1.JobService_DiscardDeadLetter_FullMethodName: {permission: authz.EditJobs, namespaceOf: namespaceOfDeadLetter, queueRule: checkedQueues},

	fermatav1.JobService_CreateJob_FullMethodName:       {permission: authz.EditJobs, namespaceOf: namespaceOfParent, queueRule: checkedQueues},
	fermatav1.JobService_BatchCreateJobs_FullMethodName: {permission: authz.EditJobs, namespaceOf: namespaceOfParent, queueRule: checkedQueues},
	fermatav1.JobService_UpdateJob_FullMethodName:       {permission: authz.EditJobs, namespaceOf: namespaceOfUpdate, queueRule: checkedQueues},
	// Who chooses the payload decides what the handler does.
	fermatav1.JobService_RunJobWithPayload_FullMethodName:      {permission: authz.EditJobs, namespaceOf: namespaceOfJob((*fermatav1.RunJobWithPayloadRequest).GetName), queueRule: checkedQueues},
	fermatav1.JobService_RestoreJobRevision_FullMethodName:     {permission: authz.EditJobs, namespaceOf: namespaceOfRevision((*fermatav1.RestoreJobRevisionRequest).GetName), queueRule: checkedQueues},
	fermatav1.JobService_RenameJob_FullMethodName:              {permission: authz.EditJobs, namespaceOf: namespaceOfJob((*fermatav1.RenameJobRequest).GetName), queueRule: checkedQueues},
	fermatav1.JobService_ApplyJobs_FullMethodName:              {permission: authz.EditJobs, namespaceOf: namespaceOfParent, queueRule: checkedQueues},
	fermatav1.JobService_DeleteJob_FullMethodName:              {permission: authz.EditJobs, namespaceOf: namespaceOfJob((*fermatav1.DeleteJobRequest).GetName), queueRule: checkedQueues},
	fermatav1.JobService_BulkPauseJobs_FullMethodName:          {permission: authz.OperateJobs, namespaceOf: namespaceOfParent, queueRule: checkedQueues},
	fermatav1.JobService_BulkResumeJobs_FullMethodName:         {permission: authz.OperateJobs, namespaceOf: namespaceOfParent, queueRule: checkedQueues},
	fermatav1.JobService_BulkRunJobs_FullMethodName:            {permission: authz.OperateJobs, namespaceOf: namespaceOfParent, queueRule: checkedQueues},
	fermatav1.JobService_BulkCancelRuns_FullMethodName:         {permission: authz.OperateJobs, namespaceOf: namespaceOfParent, queueRule: checkedQueues},
	fermatav1.JobService_BulkRedriveDeadLetters_FullMethodName: {permission: authz.OperateJobs, namespaceOf: namespaceOfParent, queueRule: checkedQueues},
	// A dead letter of a one-time job is the job.
	fermatav1.JobService_BulkDeleteJobs_FullMethodName:         {permission: authz.EditJobs, namespaceOf: namespaceOfParent, queueRule: checkedQueues},
	fermatav1.JobService_BulkDiscardDeadLetters_FullMethodName: {permission: authz.EditJobs, namespaceOf: namespaceOfParent, queueRule: checkedQueues},

	// Exports hold every payload, and a restore sets states that no edit could.
	fermatav1.JobService_UpdateQueueSettings_FullMethodName: {permission: authz.AdministerJobs, namespaceOf: namespaceOfSettings, queueRule: namedQueues, queuesOf: queuesOfSettings},
	fermatav1.JobService_PauseQueue_FullMethodName:          {permission: authz.AdministerJobs, namespaceOf: namespaceOfQueue((*fermatav1.PauseQueueRequest).GetName), queueRule: namedQueues, queuesOf: queuesOfPause},
	fermatav1.BackupService_ExportJobs_FullMethodName:       {permission: authz.AdministerJobs, namespaceOf: namespaceOfParent, queueRule: allQueues},
	fermatav1.BackupService_RestoreJobs_FullMethodName:      {permission: authz.AdministerJobs, namespaceOf: namespaceOfParent, queueRule: allQueues},

	fermatav1.ClusterService_ListQueues_FullMethodName:     {permission: authz.ReadJobs, namespaceOf: namespaceOfOptionalParent, queueRule: checkedQueues},
	fermatav1.ClusterService_ListNamespaces_FullMethodName: {permission: authz.ReadJobs, namespaceOf: anyNamespace, spansNamespaces: true, queueRule: checkedQueues},
	fermatav1.ClusterService_ForecastLoad_FullMethodName:   {permission: authz.ReadJobs, namespaceOf: namespaceOfDashParent, queueRule: checkedQueues},
	fermatav1.ClusterService_ListNodes_FullMethodName:      {permission: authz.ReadCluster, queueRule: allQueues},
	fermatav1.ClusterService_ListShards_FullMethodName:     {permission: authz.ReadCluster, queueRule: allQueues},
	fermatav1.ClusterService_ListWorkers_FullMethodName:    {permission: authz.ReadCluster, queueRule: allQueues},
	// What it finds names jobs of all namespaces.
	fermatav1.ClusterService_CheckShard_FullMethodName: {permission: authz.AdministerCluster, queueRule: allQueues},
	// Who administers a namespace sees what was done in it, if the request asks for no more.
	fermatav1.ClusterService_ListAuditRecords_FullMethodName: {permission: authz.AdministerJobs, namespaceOf: namespaceOfAudit, queueRule: allQueues},
	// The chain is one for all namespaces, and so are exports.
	fermatav1.ClusterService_ReadAuditRecords_FullMethodName:        {permission: authz.AdministerCluster, queueRule: allQueues},
	fermatav1.ClusterService_AcknowledgeAuditRecords_FullMethodName: {permission: authz.AdministerCluster, queueRule: allQueues},
	fermatav1.ClusterService_ListAuditExports_FullMethodName:        {permission: authz.AdministerCluster, queueRule: allQueues},
	fermatav1.ClusterService_DeleteAuditExport_FullMethodName:       {permission: authz.AdministerCluster, queueRule: allQueues},

	// Its handler decides by the request: without a namespace it is about all.
	fermatav1.EventService_WatchEvents_FullMethodName: {permission: authz.ReadJobs, namespaceOf: namespaceOfOptionalParent, decidedByHandler: true, queueRule: checkedQueues},
	// Webhooks and what they gave up on are about all namespaces.
	fermatav1.EventService_ListWebhooks_FullMethodName:          {permission: authz.ReadCluster, queueRule: allQueues},
	fermatav1.EventService_ListUndeliveredEvents_FullMethodName: {permission: authz.AdministerCluster, queueRule: allQueues},
	fermatav1.EventService_RedeliverEvents_FullMethodName:       {permission: authz.AdministerCluster, queueRule: allQueues},
	externalscaler.ExternalScaler_IsActive_FullMethodName:       {permission: authz.ReadQueues, namespaceOf: namespaceOfTrigger, queueRule: namedQueues, queuesOf: queuesOfTrigger},
	externalscaler.ExternalScaler_StreamIsActive_FullMethodName: {permission: authz.ReadQueues, namespaceOf: namespaceOfTrigger, decidedByHandler: true, queueRule: checkedQueues},
	externalscaler.ExternalScaler_GetMetricSpec_FullMethodName:  {permission: authz.ReadQueues, namespaceOf: namespaceOfTrigger, queueRule: namedQueues, queuesOf: queuesOfTrigger},
	externalscaler.ExternalScaler_GetMetrics_FullMethodName:     {permission: authz.ReadQueues, namespaceOf: namespaceOfTrigger, queueRule: namedQueues, queuesOf: queuesOfTrigger},

	// It shows callers nothing but what concerns themselves.
	fermatav1.AccessService_WhoAmI_FullMethodName: {permission: authz.Anyone, queueRule: allQueues},

	fermatav1.WorkerService_Work_FullMethodName: {permission: authz.Work, decidedByHandler: true, queueRule: checkedQueues},

	fermatav1.PeerService_Link_FullMethodName:           {permission: authz.Relay, queueRule: allQueues},
	fermatav1.PeerService_ForecastShards_FullMethodName: {permission: authz.Relay, queueRule: allQueues},
	fermatav1.PeerService_DescribeNode_FullMethodName:   {permission: authz.Relay, queueRule: allQueues},

	// Load balancers ask, who have no identity; they learn which services there are.
	"/grpc.health.v1.Health/Check": {open: true, queueRule: allQueues},
	"/grpc.health.v1.Health/List":  {open: true, queueRule: allQueues},
	"/grpc.health.v1.Health/Watch": {open: true, queueRule: allQueues},

	"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo":      {permission: authz.AdministerCluster, queueRule: allQueues},
	"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": {permission: authz.AdministerCluster, queueRule: allQueues},
}

// namespaceOfJob scopes requests that name a job in their field name.
func namespaceOfJob[Q any](name func(Q) string) func(any) (string, error) {
	return namespaceOfJobIn("name", name)
}

func namespaceOfJobIn[Q any](field string, name func(Q) string) func(any) (string, error) {
	return func(q any) (string, error) {
		key, err := convert.ParseJobName(field, name(q.(Q)))
		return key.Namespace, err
	}
}

// namespaceOfJobsParent scopes requests about the runs of a job or of all jobs.
func namespaceOfJobsParent(q any) (string, error) {
	namespace, _, err := convert.ParseJobsParent("parent", q.(interface{ GetParent() string }).GetParent())
	return namespace, err
}

func namespaceOfRun[Q any](name func(Q) string) func(any) (string, error) {
	return func(q any) (string, error) {
		key, _, err := convert.ParseRunName("name", name(q.(Q)))
		return key.Namespace, err
	}
}

func namespaceOfRevision[Q any](name func(Q) string) func(any) (string, error) {
	return func(q any) (string, error) {
		key, _, err := convert.ParseRevisionName("name", name(q.(Q)))
		return key.Namespace, err
	}
}

func namespaceOfDeadLetter(q any) (string, error) {
	record, err := convert.ParseDeadLetterName("name", q.(*fermatav1.DiscardDeadLetterRequest).GetName())
	return record.Key().Namespace, err
}

func namespaceOfQueue[Q any](name func(Q) string) func(any) (string, error) {
	return func(q any) (string, error) {
		queue, err := convert.ParseQueueName("name", name(q.(Q)))
		return queue.Namespace, err
	}
}

func namespaceOfUpdate(q any) (string, error) {
	key, err := convert.ParseJobName("job.name", q.(*fermatav1.UpdateJobRequest).GetJob().GetName())
	return key.Namespace, err
}

// namespaceOfAudit scopes requests for audit records by the resource that they ask about: that of a
// namespace, or one in it. One with parts that no name has is about all.
func namespaceOfAudit(q any) (string, error) {
	inside, ok := strings.CutPrefix(q.(*fermatav1.ListAuditRecordsRequest).GetResource(), "namespaces/")
	parts := strings.Split(strings.TrimSuffix(inside, "/"), "/")
	namespace := parts[0]
	odd := slices.ContainsFunc(parts, func(p string) bool { return p == "" || p == "." || p == ".." })
	if !ok || odd || job.ValidateKey(job.Key{Namespace: namespace, ID: "x"}) != nil {
		return authz.AllNamespaces, nil
	}
	return namespace, nil
}

func namespaceOfSettings(q any) (string, error) {
	settings := q.(*fermatav1.UpdateQueueSettingsRequest).GetSettings()
	queue, err := convert.ParseQueueName("settings.name", settings.GetName())
	return queue.Namespace, err
}

func queuesOfGetSettings(q any) ([]string, error) {
	queue, err := convert.ParseQueueName("name", q.(*fermatav1.GetQueueSettingsRequest).GetName())
	return []string{queue.Queue}, err
}

func queuesOfPause(q any) ([]string, error) {
	queue, err := convert.ParseQueueName("name", q.(*fermatav1.PauseQueueRequest).GetName())
	return []string{queue.Queue}, err
}

func queuesOfSettings(q any) ([]string, error) {
	settings := q.(*fermatav1.UpdateQueueSettingsRequest).GetSettings()
	queue, err := convert.ParseQueueName("settings.name", settings.GetName())
	return []string{queue.Queue}, err
}

func queuesOfTrigger(q any) ([]string, error) {
	t, err := convert.ParseTrigger(q)
	return t.Queues, err
}

// namespaceOfTrigger scopes requests of autoscalers.
func namespaceOfTrigger(q any) (string, error) {
	t, err := convert.ParseTrigger(q)
	return t.Namespace, err
}

// namespaceOfParent scopes requests about the jobs of a namespace.
func namespaceOfParent(q any) (string, error) {
	return convert.ParseNamespace("parent", q.(interface{ GetParent() string }).GetParent())
}

// namespaceOfDashParent is namespaceOfOptionalParent, where "namespaces/-" means all as well.
func namespaceOfDashParent(q any) (string, error) {
	return convert.ParseNamespaceOrDash("parent", q.(interface{ GetParent() string }).GetParent())
}

// namespaceOfOptionalParent is namespaceOfParent, where no parent means all.
func namespaceOfOptionalParent(q any) (string, error) {
	return convert.ParseNamespaceOrAll("parent", q.(interface{ GetParent() string }).GetParent())
}

// anyNamespace scopes requests that are always about all namespaces of the caller.
func anyNamespace(any) (string, error) { return convert.AnyNamespace, nil }

// checkPermissions fails for a registered method without a row.
func checkPermissions(services map[string]grpc.ServiceInfo) error {
	var missing []string
	for name, service := range services {
		for _, m := range service.Methods {
			method := "/" + name + "/" + m.Name
			d, ok := methodPermissions[method]
			if !ok || d.queueRule == unspecifiedQueues || (d.queueRule == namedQueues) != (d.queuesOf != nil) {
				missing = append(missing, method)
			}
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return fmt.Errorf("rpc: no permission, or none for roles of some queues, is decided for %v", missing)
	}
	return nil
}
