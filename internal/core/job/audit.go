package job

// Fault is a kind of disagreement between the things that are stored of a job.
type Fault uint8

// Faults. Those of the index can be repaired from the records. The others are the result of a defect, or of
// manual writes to Redis.
const (
	FaultNone Fault = iota
	// FaultIndexRegion: the index has the record in another region than its state, or
	// after its time.
	FaultIndexRegion
	// FaultIndexMissing: the index does not have the record.
	FaultIndexMissing
	// FaultIndexExtra: the index lists the record in a wrong lane, or lists a record that does not exist.
	FaultIndexExtra
	// FaultLaneIndex: the index of lanes is wrong about when a lane is due first.
	FaultLaneIndex
	// FaultHistory: ended runs of a record that does not exist.
	FaultHistory
	// FaultNoState: a definition without a state.
	FaultNoState
	// FaultNoDefinition: a state without a definition.
	FaultNoDefinition
	// FaultUnreadable: the stored record, or an entry of the index of unsuccessful runs, cannot be read.
	FaultUnreadable
	// FaultState: a state that contradicts itself.
	FaultState
	// FaultRuns: a job and those of its runs that are records of their own do not
	// know of each other.
	FaultRuns
	// FaultObjective: the index of lateness objectives has the record after the time at which
	// its run breaks the objective, or not at all. It can be repaired.
	FaultObjective
	// FaultRevisions: revisions of a job that does not exist. They can be removed.
	FaultRevisions
	// FaultOversized: the shard has more lanes than one read lists. Its data is consistent.
	FaultOversized
	// FaultUnsuccessful: lists do not find the index of unsuccessful runs of a queue. It can be repaired.
	FaultUnsuccessful
)

func (f Fault) String() string {
	return enumName(f, "none", "index region", "index missing", "index extra", "lane index", "history", "no state",
		"no definition",
		"unreadable", "state", "runs", "objective", "revisions", "oversized", "unsuccessful runs")
}

// Repairable reports whether the fault can be repaired without loss.
func (f Fault) Repairable() bool {
	return f >= FaultIndexRegion && f <= FaultHistory || f == FaultObjective || f == FaultRevisions ||
		f == FaultUnsuccessful
}

// Finding is one fault.
type Finding struct {
	Fault  Fault
	Record RecordID // "" for FaultLaneIndex and FaultOversized
	Lane   string   // "" where no lane is concerned
	// Detail describes, for people, the stored and the expected value.
	Detail   string
	Repaired bool
}

// MaxFindings bounds those of one audit.
const MaxFindings = 1000

// ConsistencyReport is the result of an audit of a shard.
type ConsistencyReport struct {
	// Records that were looked at, by region.
	Records [RegionDone + 1]int64
	// Findings, at most MaxFindings.
	Findings []Finding
	// More: there are further findings.
	More bool
}
