package rpc

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

// demand is what a method asks of its caller.
type demand struct {
	permission authz.Permission
	// scope finds the namespace that a request is about, by the functions that the
	// handler reads it with, so that both mean the same. nil: it is about all.
	scope func(q any) (string, error)
	// open: nobody has to be authenticated.
	open bool
	// hello: the handler decides on the first message of the stream.
	hello bool
	// queues is what holds for roles that are limited to queues.
	queues queueRule
	// named finds the queues of a request of a method with namedQueues.
	named func(q any) ([]string, error)
}

// demands has a row for each method that a server may register. NewServer refuses
// one without a row, so that nothing is reachable that nobody has thought about.
//
// Batches name one namespace in parent; the handlers refuse items of another one. What holds
// for roles that are limited to queues is in queue_roles.go.
var demands = map[string]demand{
	fermatav1.JobService_GetJob_FullMethodName:           {permission: authz.ReadJobs, scope: byJob((*fermatav1.GetJobRequest).GetName), queues: checkedQueues},
	fermatav1.JobService_ListJobs_FullMethodName:         {permission: authz.ReadJobs, scope: byParent, queues: checkedQueues},
	fermatav1.JobService_ListRuns_FullMethodName:         {permission: authz.ReadJobs, scope: byJobIn("parent", (*fermatav1.ListRunsRequest).GetParent), queues: checkedQueues},
	fermatav1.JobService_GetRun_FullMethodName:           {permission: authz.ReadJobs, scope: byRun((*fermatav1.GetRunRequest).GetName), queues: checkedQueues},
	fermatav1.JobService_ExplainJob_FullMethodName:       {permission: authz.ReadJobs, scope: byJob((*fermatav1.ExplainJobRequest).GetName), queues: checkedQueues},
	fermatav1.JobService_ListDeadLetters_FullMethodName:  {permission: authz.ReadJobs, scope: byParent, queues: checkedQueues},
	fermatav1.JobService_TopJobs_FullMethodName:          {permission: authz.ReadJobs, scope: byParentOrAll, queues: checkedQueues},
	fermatav1.JobService_GetQueueSettings_FullMethodName: {permission: authz.ReadJobs, scope: byQueue((*fermatav1.GetQueueSettingsRequest).GetName), queues: namedQueues, named: ofGetSettings},
	fermatav1.JobService_PlanJobs_FullMethodName:         {permission: authz.ReadJobs, scope: byParent, queues: checkedQueues},
	// These two tell nothing that is stored, but for a preview that names a job: its
	// handler asks for the permission to read it. A preview takes time of a processor, which
	// is not for those whom no rule gives anything.
	fermatav1.JobService_PreviewSchedule_FullMethodName: {permission: authz.AnyRole, queues: checkedQueues},
	fermatav1.JobService_ListPresets_FullMethodName:     {permission: authz.Anyone, queues: allQueues},

	fermatav1.JobService_PauseJob_FullMethodName:           {permission: authz.OperateJobs, scope: byJob((*fermatav1.PauseJobRequest).GetName), queues: checkedQueues},
	fermatav1.JobService_ResumeJob_FullMethodName:          {permission: authz.OperateJobs, scope: byJob((*fermatav1.ResumeJobRequest).GetName), queues: checkedQueues},
	fermatav1.JobService_PauseJobs_FullMethodName:          {permission: authz.OperateJobs, scope: byParent, queues: checkedQueues},
	fermatav1.JobService_ResumeJobs_FullMethodName:         {permission: authz.OperateJobs, scope: byParent, queues: checkedQueues},
	fermatav1.JobService_RunJob_FullMethodName:             {permission: authz.OperateJobs, scope: byJob((*fermatav1.RunJobRequest).GetName), queues: checkedQueues},
	fermatav1.JobService_CancelRun_FullMethodName:          {permission: authz.OperateJobs, scope: byRun((*fermatav1.CancelRunRequest).GetName), queues: checkedQueues},
	fermatav1.JobService_HintJob_FullMethodName:            {permission: authz.OperateJobs, scope: byJob((*fermatav1.HintJobRequest).GetName), queues: checkedQueues},
	fermatav1.JobService_BackfillJob_FullMethodName:        {permission: authz.OperateJobs, scope: byJob((*fermatav1.BackfillJobRequest).GetName), queues: checkedQueues},
	fermatav1.JobService_CancelBackfill_FullMethodName:     {permission: authz.OperateJobs, scope: byJob((*fermatav1.CancelBackfillRequest).GetName), queues: checkedQueues},
	fermatav1.JobService_RedriveDeadLetters_FullMethodName: {permission: authz.OperateJobs, scope: byParent, queues: checkedQueues},

	fermatav1.JobService_CreateJob_FullMethodName:       {permission: authz.EditJobs, scope: byParent, queues: checkedQueues},
	fermatav1.JobService_BatchCreateJobs_FullMethodName: {permission: authz.EditJobs, scope: byParent, queues: checkedQueues},
	fermatav1.JobService_UpdateJob_FullMethodName:       {permission: authz.EditJobs, scope: byUpdate, queues: checkedQueues},
	fermatav1.JobService_ApplyJobs_FullMethodName:       {permission: authz.EditJobs, scope: byParent, queues: checkedQueues},
	fermatav1.JobService_DeleteJob_FullMethodName:       {permission: authz.EditJobs, scope: byJob((*fermatav1.DeleteJobRequest).GetName), queues: checkedQueues},

	// Exports hold every payload, and a restore sets states that no edit could.
	fermatav1.JobService_UpdateQueueSettings_FullMethodName: {permission: authz.AdministerJobs, scope: bySettings, queues: namedQueues, named: ofSettings},
	fermatav1.BackupService_ExportJobs_FullMethodName:       {permission: authz.AdministerJobs, scope: byParent, queues: allQueues},
	fermatav1.BackupService_RestoreJobs_FullMethodName:      {permission: authz.AdministerJobs, scope: byParent, queues: allQueues},

	fermatav1.ClusterService_ListQueues_FullMethodName:  {permission: authz.ReadJobs, scope: byParentOrAll, queues: checkedQueues},
	fermatav1.ClusterService_ListNodes_FullMethodName:   {permission: authz.ReadCluster, queues: allQueues},
	fermatav1.ClusterService_ListShards_FullMethodName:  {permission: authz.ReadCluster, queues: allQueues},
	fermatav1.ClusterService_ListWorkers_FullMethodName: {permission: authz.ReadCluster, queues: allQueues},
	// What it finds names jobs of all namespaces.
	fermatav1.ClusterService_CheckShard_FullMethodName: {permission: authz.AdministerCluster, queues: allQueues},
	// Who administers a namespace sees what was done in it, if the request asks for no more.
	fermatav1.ClusterService_ListAuditRecords_FullMethodName: {permission: authz.AdministerJobs, scope: byAudited, queues: allQueues},
	// The chain is one for all namespaces, and so are exports.
	fermatav1.ClusterService_ReadAuditRecords_FullMethodName:        {permission: authz.AdministerCluster, queues: allQueues},
	fermatav1.ClusterService_AcknowledgeAuditRecords_FullMethodName: {permission: authz.AdministerCluster, queues: allQueues},
	fermatav1.ClusterService_ListAuditExports_FullMethodName:        {permission: authz.AdministerCluster, queues: allQueues},
	fermatav1.ClusterService_DeleteAuditExport_FullMethodName:       {permission: authz.AdministerCluster, queues: allQueues},

	// Its handler decides by the request: without a namespace it is about all.
	fermatav1.EventService_WatchEvents_FullMethodName: {permission: authz.ReadJobs, scope: byParentOrAll, hello: true, queues: checkedQueues},
	// Webhooks and what they gave up on are about all namespaces.
	fermatav1.EventService_ListWebhooks_FullMethodName:          {permission: authz.ReadCluster, queues: allQueues},
	fermatav1.EventService_ListUndeliveredEvents_FullMethodName: {permission: authz.AdministerCluster, queues: allQueues},
	fermatav1.EventService_RedeliverEvents_FullMethodName:       {permission: authz.AdministerCluster, queues: allQueues},
	externalscaler.ExternalScaler_IsActive_FullMethodName:       {permission: authz.ReadQueues, scope: byTrigger, queues: namedQueues, named: ofTrigger},
	externalscaler.ExternalScaler_StreamIsActive_FullMethodName: {permission: authz.ReadQueues, scope: byTrigger, hello: true, queues: checkedQueues},
	externalscaler.ExternalScaler_GetMetricSpec_FullMethodName:  {permission: authz.ReadQueues, scope: byTrigger, queues: namedQueues, named: ofTrigger},
	externalscaler.ExternalScaler_GetMetrics_FullMethodName:     {permission: authz.ReadQueues, scope: byTrigger, queues: namedQueues, named: ofTrigger},

	// It shows callers nothing but what concerns themselves.
	fermatav1.AccessService_WhoAmI_FullMethodName: {permission: authz.Anyone, queues: allQueues},

	fermatav1.WorkerService_Work_FullMethodName: {permission: authz.Work, hello: true, queues: checkedQueues},

	fermatav1.PeerService_Link_FullMethodName:         {permission: authz.Relay, queues: allQueues},
	fermatav1.PeerService_DescribeNode_FullMethodName: {permission: authz.Relay, queues: allQueues},

	// Load balancers ask, who have no identity; they learn which services there are.
	"/grpc.health.v1.Health/Check": {open: true, queues: allQueues},
	"/grpc.health.v1.Health/List":  {open: true, queues: allQueues},
	"/grpc.health.v1.Health/Watch": {open: true, queues: allQueues},

	"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo":      {permission: authz.AdministerCluster, queues: allQueues},
	"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": {permission: authz.AdministerCluster, queues: allQueues},
}

// byJob scopes requests that name a job in their field name.
func byJob[Q any](name func(Q) string) func(any) (string, error) { return byJobIn("name", name) }

func byJobIn[Q any](field string, name func(Q) string) func(any) (string, error) {
	return func(q any) (string, error) {
		key, err := convert.ParseJobName(field, name(q.(Q)))
		return key.Namespace, err
	}
}

func byRun[Q any](name func(Q) string) func(any) (string, error) {
	return func(q any) (string, error) {
		key, _, err := convert.ParseRunName("name", name(q.(Q)))
		return key.Namespace, err
	}
}

func byQueue[Q any](name func(Q) string) func(any) (string, error) {
	return func(q any) (string, error) {
		queue, err := convert.ParseQueueName("name", name(q.(Q)))
		return queue.Namespace, err
	}
}

func byUpdate(q any) (string, error) {
	key, err := convert.ParseJobName("job.name", q.(*fermatav1.UpdateJobRequest).GetJob().GetName())
	return key.Namespace, err
}

// byAudited scopes requests for audit records by the resource that they ask about: that of a
// namespace, or one in it. One with parts that no name has is about all.
func byAudited(q any) (string, error) {
	inside, ok := strings.CutPrefix(q.(*fermatav1.ListAuditRecordsRequest).GetResource(), "namespaces/")
	parts := strings.Split(strings.TrimSuffix(inside, "/"), "/")
	namespace := parts[0]
	odd := slices.ContainsFunc(parts, func(p string) bool { return p == "" || p == "." || p == ".." })
	if !ok || odd || job.ValidateKey(job.Key{Namespace: namespace, ID: "x"}) != nil {
		return authz.Everywhere, nil
	}
	return namespace, nil
}

func bySettings(q any) (string, error) {
	queue, err := convert.ParseQueueName("settings.name", q.(*fermatav1.UpdateQueueSettingsRequest).GetSettings().GetName())
	return queue.Namespace, err
}

func ofGetSettings(q any) ([]string, error) {
	queue, err := convert.ParseQueueName("name", q.(*fermatav1.GetQueueSettingsRequest).GetName())
	return []string{queue.Queue}, err
}

func ofSettings(q any) ([]string, error) {
	queue, err := convert.ParseQueueName("settings.name", q.(*fermatav1.UpdateQueueSettingsRequest).GetSettings().GetName())
	return []string{queue.Queue}, err
}

func ofTrigger(q any) ([]string, error) {
	t, err := convert.ParseTrigger(q)
	return t.Queues, err
}

// byTrigger scopes requests of autoscalers.
func byTrigger(q any) (string, error) {
	t, err := convert.ParseTrigger(q)
	return t.Namespace, err
}

// byParent scopes requests about the jobs of a namespace.
func byParent(q any) (string, error) {
	return convert.ParseNamespace("parent", q.(interface{ GetParent() string }).GetParent())
}

// byParentOrAll is byParent, where no parent means all.
func byParentOrAll(q any) (string, error) {
	return convert.ParseNamespaceOrAll("parent", q.(interface{ GetParent() string }).GetParent())
}

// checkDemands fails for a registered method without a row.
func checkDemands(services map[string]grpc.ServiceInfo) error {
	var missing []string
	for name, service := range services {
		for _, m := range service.Methods {
			method := "/" + name + "/" + m.Name
			d, ok := demands[method]
			if !ok || d.queues == undecided || (d.queues == namedQueues) != (d.named != nil) {
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
