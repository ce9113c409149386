package rpc

import (
	"fmt"
	"slices"

	"google.golang.org/grpc"

	"github.com/fermata-io/fermata/internal/access"
	"github.com/fermata-io/fermata/proto/externalscaler"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// demand is what a method asks of its caller.
type demand struct {
	permission access.Permission
	// scope finds the namespace that a request is about, by the functions that the
	// handler reads it with, so that both mean the same. nil: it is about all.
	scope func(q any) (string, error)
	// open: nobody has to be authenticated.
	open bool
	// hello: the handler decides on the first message of the stream.
	hello bool
}

// demands has a row for each method that a server may register. NewServer refuses
// one without a row, so that nothing is reachable that nobody has thought about.
//
// Batches name one namespace in parent; the handlers refuse items of another one.
var demands = map[string]demand{
	fermatav1.JobService_GetJob_FullMethodName:           {permission: access.ReadJobs, scope: byJob((*fermatav1.GetJobRequest).GetName)},
	fermatav1.JobService_ListJobs_FullMethodName:         {permission: access.ReadJobs, scope: byParent},
	fermatav1.JobService_ListRuns_FullMethodName:         {permission: access.ReadJobs, scope: byJobIn("parent", (*fermatav1.ListRunsRequest).GetParent)},
	fermatav1.JobService_GetRun_FullMethodName:           {permission: access.ReadJobs, scope: byRun((*fermatav1.GetRunRequest).GetName)},
	fermatav1.JobService_ExplainJob_FullMethodName:       {permission: access.ReadJobs, scope: byJob((*fermatav1.ExplainJobRequest).GetName)},
	fermatav1.JobService_ListDeadLetters_FullMethodName:  {permission: access.ReadJobs, scope: byParent},
	fermatav1.JobService_TopJobs_FullMethodName:          {permission: access.ReadJobs, scope: byParentOrAll},
	fermatav1.JobService_GetQueueSettings_FullMethodName: {permission: access.ReadJobs, scope: byQueue((*fermatav1.GetQueueSettingsRequest).GetName)},
	fermatav1.JobService_PlanJobs_FullMethodName:         {permission: access.ReadJobs, scope: byParent},
	// These two tell nothing that is stored, but for a preview that names a job: its
	// handler asks for the permission to read it.
	fermatav1.JobService_PreviewSchedule_FullMethodName: {permission: access.Anyone},
	fermatav1.JobService_ListPresets_FullMethodName:     {permission: access.Anyone},

	fermatav1.JobService_PauseJob_FullMethodName:           {permission: access.OperateJobs, scope: byJob((*fermatav1.PauseJobRequest).GetName)},
	fermatav1.JobService_ResumeJob_FullMethodName:          {permission: access.OperateJobs, scope: byJob((*fermatav1.ResumeJobRequest).GetName)},
	fermatav1.JobService_PauseJobs_FullMethodName:          {permission: access.OperateJobs, scope: byParent},
	fermatav1.JobService_ResumeJobs_FullMethodName:         {permission: access.OperateJobs, scope: byParent},
	fermatav1.JobService_RunJob_FullMethodName:             {permission: access.OperateJobs, scope: byJob((*fermatav1.RunJobRequest).GetName)},
	fermatav1.JobService_CancelRun_FullMethodName:          {permission: access.OperateJobs, scope: byRun((*fermatav1.CancelRunRequest).GetName)},
	fermatav1.JobService_HintJob_FullMethodName:            {permission: access.OperateJobs, scope: byJob((*fermatav1.HintJobRequest).GetName)},
	fermatav1.JobService_BackfillJob_FullMethodName:        {permission: access.OperateJobs, scope: byJob((*fermatav1.BackfillJobRequest).GetName)},
	fermatav1.JobService_CancelBackfill_FullMethodName:     {permission: access.OperateJobs, scope: byJob((*fermatav1.CancelBackfillRequest).GetName)},
	fermatav1.JobService_RedriveDeadLetters_FullMethodName: {permission: access.OperateJobs, scope: byParent},

	fermatav1.JobService_CreateJob_FullMethodName:       {permission: access.EditJobs, scope: byParent},
	fermatav1.JobService_BatchCreateJobs_FullMethodName: {permission: access.EditJobs, scope: byParent},
	fermatav1.JobService_UpdateJob_FullMethodName:       {permission: access.EditJobs, scope: byUpdate},
	fermatav1.JobService_ApplyJobs_FullMethodName:       {permission: access.EditJobs, scope: byParent},
	fermatav1.JobService_DeleteJob_FullMethodName:       {permission: access.EditJobs, scope: byJob((*fermatav1.DeleteJobRequest).GetName)},

	// Exports hold every payload, and a restore sets states that no edit could.
	fermatav1.JobService_UpdateQueueSettings_FullMethodName: {permission: access.AdministerJobs, scope: bySettings},
	fermatav1.BackupService_ExportJobs_FullMethodName:       {permission: access.AdministerJobs, scope: byParent},
	fermatav1.BackupService_RestoreJobs_FullMethodName:      {permission: access.AdministerJobs, scope: byParent},

	fermatav1.ClusterService_ListQueues_FullMethodName:  {permission: access.ReadJobs, scope: byParentOrAll},
	fermatav1.ClusterService_ListNodes_FullMethodName:   {permission: access.ReadCluster},
	fermatav1.ClusterService_ListShards_FullMethodName:  {permission: access.ReadCluster},
	fermatav1.ClusterService_ListWorkers_FullMethodName: {permission: access.ReadCluster},
	// What it finds names jobs of all namespaces.
	fermatav1.ClusterService_CheckShard_FullMethodName:       {permission: access.AdministerCluster},
	fermatav1.ClusterService_ListAuditRecords_FullMethodName: {permission: access.AdministerCluster},

	// Its handler decides by the request: without a namespace it is about all.
	fermatav1.EventService_WatchEvents_FullMethodName: {permission: access.ReadJobs, scope: byParentOrAll, hello: true},
	// Webhooks and what they gave up on are about all namespaces.
	fermatav1.EventService_ListWebhooks_FullMethodName:          {permission: access.ReadCluster},
	fermatav1.EventService_ListUndeliveredEvents_FullMethodName: {permission: access.AdministerCluster},
	fermatav1.EventService_RedeliverEvents_FullMethodName:       {permission: access.AdministerCluster},
	externalscaler.ExternalScaler_IsActive_FullMethodName:       {permission: access.ReadQueues, scope: byTrigger},
	externalscaler.ExternalScaler_StreamIsActive_FullMethodName: {permission: access.ReadQueues, scope: byTrigger, hello: true},
	externalscaler.ExternalScaler_GetMetricSpec_FullMethodName:  {permission: access.ReadQueues, scope: byTrigger},
	externalscaler.ExternalScaler_GetMetrics_FullMethodName:     {permission: access.ReadQueues, scope: byTrigger},

	// It shows callers nothing but what concerns themselves.
	fermatav1.AccessService_WhoAmI_FullMethodName: {permission: access.Anyone},

	fermatav1.WorkerService_Work_FullMethodName: {permission: access.Work, hello: true},

	fermatav1.PeerService_Link_FullMethodName:         {permission: access.Relay},
	fermatav1.PeerService_DescribeNode_FullMethodName: {permission: access.Relay},

	// Load balancers ask, who have no identity; they learn which services there are.
	"/grpc.health.v1.Health/Check": {open: true},
	"/grpc.health.v1.Health/List":  {open: true},
	"/grpc.health.v1.Health/Watch": {open: true},

	"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo":      {permission: access.AdministerCluster},
	"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": {permission: access.AdministerCluster},
}

// byJob scopes requests that name a job in their field name.
func byJob[Q any](name func(Q) string) func(any) (string, error) { return byJobIn("name", name) }

func byJobIn[Q any](field string, name func(Q) string) func(any) (string, error) {
	return func(q any) (string, error) {
		key, err := parseJob(field, name(q.(Q)))
		return key.Namespace, err
	}
}

func byRun[Q any](name func(Q) string) func(any) (string, error) {
	return func(q any) (string, error) {
		key, _, err := parseRun("name", name(q.(Q)))
		return key.Namespace, err
	}
}

func byQueue[Q any](name func(Q) string) func(any) (string, error) {
	return func(q any) (string, error) {
		queue, err := parseQueue("name", name(q.(Q)))
		return queue.Namespace, err
	}
}

func byUpdate(q any) (string, error) {
	key, err := parseJob("job.name", q.(*fermatav1.UpdateJobRequest).GetJob().GetName())
	return key.Namespace, err
}

func bySettings(q any) (string, error) {
	queue, err := parseQueue("settings.name", q.(*fermatav1.UpdateQueueSettingsRequest).GetSettings().GetName())
	return queue.Namespace, err
}

// byTrigger scopes requests of autoscalers.
func byTrigger(q any) (string, error) {
	t, err := parseTrigger(q)
	return t.Namespace, err
}

// byParent scopes requests about the jobs of a namespace.
func byParent(q any) (string, error) {
	return parseNamespace("parent", q.(interface{ GetParent() string }).GetParent())
}

// byParentOrAll is byParent, where no parent means all.
func byParentOrAll(q any) (string, error) {
	if q.(interface{ GetParent() string }).GetParent() == "" {
		return access.Everywhere, nil
	}
	return byParent(q)
}

// checkDemands fails for a registered method without a row.
func checkDemands(services map[string]grpc.ServiceInfo) error {
	var missing []string
	for name, service := range services {
		for _, m := range service.Methods {
			method := "/" + name + "/" + m.Name
			if _, ok := demands[method]; !ok {
				missing = append(missing, method)
			}
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return fmt.Errorf("rpc: no permission is decided for %v", missing)
	}
	return nil
}
