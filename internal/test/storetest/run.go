package storetest

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/redis/redisstore"
)

// Run runs the suite against the server that open connects to, which tests also
// use to look and to break things, with adjusted options for the stores. Each
// test has a keyspace of its own, so that one server serves them all.
func Run(t *testing.T, open func(t testing.TB) redis.UniversalClient, adjust ...func(*redisstore.Options)) {
	tests := []struct {
		name string
		run  func(*World)
	}{
		{"create stores and reports what became earlier", testCreate},
		{"create tells what exists", testCreateExists},
		{"create takes large batches", testCreateLarge},
		{"create mends what cannot be read", testCreateMends},
		{"lease takes the oldest due, by lane", testLeaseOrder},
		{"what is due soon is leased in advance", testLeaseInAdvance},
		{"lease of a batch can be repeated", testLeaseReplay},
		{"leases come with their definitions", testLeaseDefinitions},
		{"lease needs the lock", testLeaseLock},
		{"lease refuses senseless requests", testLeaseRefuses},
		{"lease of nothing keeps late copies out", testLeaseOfNothing},
		{"tokens only grow", testTokens},
		{"lease puts corrupt records aside", testLeaseCorrupt},
		{"lease spans shards and lanes", testLeaseMany},
		{"callers that have gone are forgotten", testCallersForgotten},
		{"apply compares and sets", testApply},
		{"apply answers a repeated call alike", testApplyRepeated},
		{"apply moves between lanes", testApplyMoves},
		{"an edit stores the definition that it replaces", testRevisions},
		{"revisions are bounded by bytes", testRevisionBytes},
		{"revisions are removed", testRevisionRemoval},
		{"a restore writes revisions", testRestoredRevisions},
		{"apply keeps a live record's lease", testApplyLive},
		{"apply takes a record twice", testApplyTwice},
		{"apply only when expired", testApplyExpired},
		{"history and dead letters", testHistory},
		{"a state keeps the only run", testKeptRuns},
		{"a state keeps a run by its schema", testKeptRunsNeedTheSchema},
		{"history shrinks with its limit", testHistoryShrinks},
		{"an edit of the history keeps the run that it ends", testEditEndsRun},
		{"delete leaves nothing", testDelete},
		{"a run becomes a record of its own", testSpawn},
		{"a run in a slot is not overwritten", testSpawnTaken},
		{"a run that another one spawned is distinguished", testSpawnOfAnother},
		{"two writes together, or neither", testTogether},
		{"a slot is used again at once", testSlotReused},
		{"runs of their own leave dead letters", testLettersOfRuns},
		{"dead letters are listed", testListLetters},
		{"a dead letter leaves the lane before", testLetterMoves},
		{"a deleted job stays for its runs", testDeleteWithRuns},
		{"a run has a payload of its own", testRunPayloads},
		{"a run without its own payload does not run", testWrongRunPayload},
		{"renew", testRenew},
		{"expired leases are listed", testExpired},
		{"reaping goes on past what cannot be read", testReapPastUnreadable},
		{"sweep deletes what is over", testSweep},
		{"sweep mends the index", testSweepMends},
		{"sweep leaves nothing of what it deletes", testSweepLeavesNothing},
		{"sweep reads states", testSweepReadsStates},
		{"sweep tells lanes apart", testSweepInTwoLanes},
		{"audit finds each fault and repairs the index", testAudit},
		{"audit of work in progress finds nothing", testAuditOfWork},
		{"repairs of the index are reported", testRepairsAreReported},
		{"lanes and stats", testLanesAndStats},
		{"what has ended", testEnded},
		{"the worst jobs are indexed, in bounds", testWorst},
		{"what waits longest is found", testOverdue},
		{"lateness objectives are indexed", testObjectives},
		{"list walks everything", testList},
		{"clock never goes back", testClock},
		{"keyspace is fixed", testKeyspace},
		{"random histories stay consistent", Random},
		{"random histories keep what a later version has added", testLaterFields},
		{"backups of random histories restore to the same", testBackups},
		{"a restore writes a job as a whole", testRestore},
		{"a restore leaves no runs that nobody deletes", testRestoreOverRuns},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { tt.run(NewWorld(t, open(t), adjust...)) })
	}
}
