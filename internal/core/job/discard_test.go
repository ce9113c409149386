package job

import "testing"

func discardable() (parent, letter State) {
	parent = State{Revision: 5, Region: RegionDue, Due: 100, Dead: 1, Lane: Lane{Namespace: "ns", Queue: "q"}}
	letter = State{Revision: 2, Token: 9, Region: RegionDead, Generation: 1, Nominal: 50, Lane: parent.Lane}
	return parent, letter
}

// TestDiscardDeletesTheLetterOfTheRun and changes nothing of the job but its revision.
func TestDiscardDeletesTheLetterOfTheRun(t *testing.T) {
	c := compile(t, def())
	parent, letter := discardable()
	pair := DecideChild(c, parent, letter, Discard{RunID: "1-50"}, 70)
	if !pair.Child.Delete || pair.Child.Answer != Applied || len(pair.Parent.Notices) != 0 {
		t.Fatalf("%+v", pair.Child)
	}
	want := parent
	want.Revision++
	got := pair.Parent.State
	if got.Due != want.Due || got.Region != want.Region || got.Revision != want.Revision || got.Dead != 1 || pair.Parent.Delete {
		t.Errorf("the job is %+v", got)
	}
	for name, change := range map[string]func(l *State) Discard{
		"another run":   func(*State) Discard { return Discard{RunID: "1-51"} },
		"no run":        func(*State) Discard { return Discard{} },
		"a live run":    func(l *State) Discard { l.Region, l.Children = RegionLeased, 1; return Discard{RunID: "1-50"} },
		"a waiting run": func(l *State) Discard { l.Region, l.Children = RegionDue, 1; return Discard{RunID: "1-50"} },
	} {
		parent, letter := discardable()
		ev := change(&letter)
		if pair := DecideChild(c, parent, letter, ev, 70); pair.Child.Answer != NotDead || pair.Child.Delete || pair.Parent.Changed {
			t.Errorf("%s: %+v", name, pair.Child)
		}
	}
}

// TestDiscardDeletesAOneTimeJobThatIsDead, and no other job.
func TestDiscardDeletesAOneTimeJobThatIsDead(t *testing.T) {
	once := compile(t, onceJob())
	dead := State{Revision: 3, Region: RegionDead, LastNominal: 50}
	if d := Decide(once, dead, Discard{RunID: "1-50"}, 70); !d.Delete || d.Answer != Applied {
		t.Errorf("%+v", d)
	}
	beside := dead
	beside.Children = 1 // a redriven run is live
	if d := Decide(once, beside, Discard{RunID: "1-50"}, 70); d.Delete || !d.State.Deleting {
		t.Errorf("with a live run: %+v", d)
	}
	for region, c := range map[Region]*Compiled{RegionDue: once, RegionLeased: once, RegionDone: once, RegionPaused: once} {
		if d := Decide(c, State{Revision: 3, Region: region, Due: 50}, Discard{RunID: "1-50"}, 70); d.Changed || d.Answer != NotDead {
			t.Errorf("region %v: %+v", region, d)
		}
	}
	if d := Decide(compile(t, def()), dead, Discard{RunID: "1-50"}, 70); d.Changed {
		t.Errorf("a recurring job: %+v", d)
	}
}
