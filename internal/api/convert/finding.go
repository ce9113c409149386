package convert

import (
	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func FindingToPB(f job.Finding) *fermatav1.Finding {
	return &fermatav1.Finding{
		Fault: faultKinds.ToPB(f.Fault), Record: string(f.Record), Lane: f.Lane, Detail: job.Clip(f.Detail, job.MaxError),
		Repairable: f.Fault.Repairable(), Repaired: f.Repaired,
	}
}

var faultKinds = Enum[fermatav1.Finding_Fault, job.Fault]{
	{fermatav1.Finding_FAULT_INDEX_REGION, job.FaultIndexRegion},
	{fermatav1.Finding_FAULT_INDEX_MISSING, job.FaultIndexMissing},
	{fermatav1.Finding_FAULT_INDEX_EXTRA, job.FaultIndexExtra},
	{fermatav1.Finding_FAULT_LANE_INDEX, job.FaultLaneIndex},
	{fermatav1.Finding_FAULT_HISTORY, job.FaultHistory},
	{fermatav1.Finding_FAULT_NO_STATE, job.FaultNoState},
	{fermatav1.Finding_FAULT_NO_DEFINITION, job.FaultNoDefinition},
	{fermatav1.Finding_FAULT_UNREADABLE, job.FaultUnreadable},
	{fermatav1.Finding_FAULT_STATE, job.FaultState},
	{fermatav1.Finding_FAULT_RUNS, job.FaultRuns},
	{fermatav1.Finding_FAULT_OBJECTIVE, job.FaultObjective},
	{fermatav1.Finding_FAULT_REVISIONS, job.FaultRevisions},
	{fermatav1.Finding_FAULT_OVERSIZED, job.FaultOversized},
	{fermatav1.Finding_FAULT_UNSUCCESSFUL_RUNS, job.FaultUnsuccessful},
}
