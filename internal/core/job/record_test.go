package job

import "testing"

// TestRecordIDParts names the parts of the ids of jobs, runs and dead letters, and of ids that are not valid.
func TestRecordIDParts(t *testing.T) {
	key := Key{Namespace: "ns", ID: "a/b"}
	for id, want := range map[RecordID]struct {
		key        Key
		job        RecordID
		isJob      bool
		run, dead  int
		isRun, isD bool
	}{
		"ns/a/b":               {key: key, job: "ns/a/b", isJob: true},
		key.Record().Run(0):    {key: key, job: "ns/a/b", isRun: true},
		key.Record().Run(63):   {key: key, job: "ns/a/b", isRun: true, run: 63},
		key.Record().Letter(2): {key: key, job: "ns/a/b", isD: true, dead: 2},
		"ns/a/b#r64":           {key: key, job: "ns/a/b"},
		"ns/a/b#r-1":           {key: key, job: "ns/a/b"},
		"ns/a/b#r":             {key: key, job: "ns/a/b"},
		"ns/a/b#d99":           {key: key, job: "ns/a/b"},
		"":                     {isJob: true},
		"ns":                   {isJob: true},
		"ns/":                  {isJob: true},
		"/a":                   {isJob: true},
		"ns/#r1":               {},
	} {
		run, isRun := id.RunSlot()
		dead, isDead := id.LetterSlot()
		if id.Key() != want.key || id.Namespace() != want.key.Namespace || id.Job() != want.job || id.IsJob() != want.isJob {
			t.Errorf("%q: key %v, namespace %q, job %q, is a job %v", id, id.Key(), id.Namespace(), id.Job(), id.IsJob())
		}
		if isRun != want.isRun || id.IsRun() != isRun || isRun && run != want.run {
			t.Errorf("%q: run %d, %v", id, run, isRun)
		}
		if isDead != want.isD || isDead && dead != want.dead {
			t.Errorf("%q: dead letter %d, %v", id, dead, isDead)
		}
		if parsed, ok := ParseRecordID(string(id)); parsed != id || ok != (want.key != Key{}) {
			t.Errorf("%q: parsed as %q, %v", id, parsed, ok)
		}
	}
}

// TestRecordIDAllocations: the parts of an id share its memory.
func TestRecordIDAllocations(t *testing.T) {
	id, sum := Key{Namespace: "namespace", ID: "job"}.Record().Run(7), 0
	allocs := testing.AllocsPerRun(100, func() {
		slot, _ := id.RunSlot()
		sum += len(id.Key().ID) + len(id.Namespace()) + len(id.Job()) + slot
		if id.IsJob() || id.IsLetter() || !id.IsRun() {
			sum++
		}
	})
	if allocs != 0 || sum == 0 {
		t.Errorf("%v allocations", allocs)
	}
}
