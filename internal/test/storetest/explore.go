package storetest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
)

// Explore checks the scripts as a model checker would: from each state that one job
// can be in, what two nodes and an operator can do next is done on the real server,
// and what came of it is compared with the rules of the contract. States that
// differ only in the values of tokens and revisions count as one. The nodes act on
// what they knew when they last looked, however long ago that was, and each
// believes for ever in the lease that it got.
//
// It goes depth steps deep and returns how many states it met and how many steps it
// took from them.
func Explore(w *World, depth int) (states, steps int) {
	e := &explorer{
		World: w, id: w.InShard(0, 1)[0], seen: map[string]bool{}, done: map[string]int{},
		audited: map[[sha256.Size]byte]bool{},
	}
	e.Damaged() // the last state is any; each is audited on the way
	frontier := []*scene{e.emptyScene(), e.dueScene()}
	frontier = append(frontier, e.takenOverScene(frontier[1]))
	for range depth {
		var next []*scene
		for _, s := range frontier {
			for _, a := range e.listActs() {
				e.restoreScene(s)
				after := e.applyAct(s, a)
				steps++
				if w.T.Failed() {
					w.T.Fatalf("after: %s", strings.Join(after.story, ", "))
				}
				if key := e.stateKey(after); !e.seen[key] {
					e.seen[key] = true
					next = append(next, after)
				}
			}
		}
		frontier = next
	}
	for _, a := range e.listActs() {
		if a.judge != nil && e.done[a.name] == 0 {
			w.T.Errorf("%q never had an effect", a.name)
		}
	}
	return len(e.seen), steps
}

const explorers = 2 // nodes

// scene is all that there is at a moment: what is stored, what the nodes know.
type scene struct {
	story    []string
	clock    int64
	texts    map[string]map[string]string // hashes
	scores   map[string][]redis.Z         // sorted sets
	stored   string                       // both as text, but for the memory of lease batches
	memory   string                       // which is this
	lock     string
	record   *job.Record // as stored; nil: none
	deadline int64       // of its lease
	highest  uint64      // token that was ever granted
	seen     [explorers]*job.Record
	lease    [explorers]*job.Leased
}

type explorer struct {
	*World
	id      string
	seen    map[string]bool
	done    map[string]int             // how often an act changed what is stored
	held    *scene                     // what the server has, once it is known
	audited map[[sha256.Size]byte]bool // what is stored, as text
}

func (e *explorer) newDefinition() job.Definition {
	d := Definition(e.id)
	d.HistoryLimit = 1
	return d
}

func (e *explorer) recordID() string { return string(e.newDefinition().Record()) }

func (e *explorer) hashNames() []string {
	return []string{e.Key(0, "meta"), e.Key(0, "st"), e.Key(0, "def"), e.Key(0, "hist"), e.Key(0, "revisions")}
}

// setNames are the index of lanes, the lanes that the job can be in, and the indexes of its unsuccessful runs.
func (e *explorer) setNames() []string {
	bulk := strings.Replace(Lane().String(), "mail", "bulk", 1)
	unsuccessful := e.Key(0, "unsuccessful")
	return []string{
		e.Key(0, "lanes"), e.Key(0, "l:") + Lane().String(), e.Key(0, "l:") + bulk,
		unsuccessful, unsuccessful + ":" + Lane().Namespace + "/" + Lane().Queue,
		unsuccessful + ":" + Lane().Namespace + "/bulk",
	}
}

// emptyScene is a shard without the job.
func (e *explorer) emptyScene() *scene {
	s := &scene{clock: e.Clock.Load(), lock: lockOf(0)}
	e.SetLock(0, s.lock)
	e.updateScene(s)
	e.readScene(s)
	return s
}

// dueScene is a shard in which the job waits to be leased.
func (e *explorer) dueScene() *scene {
	e.Add(e.newDefinition())
	e.Advance(time.Minute)
	s := e.emptyScene()
	s.story = []string{"it is due"}
	return s
}

func lockOf(node int) string {
	return fmt.Sprintf("token-of-the-holder-xx|node-%d|10.0.0.1:7000", node)
}

// takenOverScene is a shard in which node 0 still believes in a run that node 1 has.
func (e *explorer) takenOverScene(s *scene) *scene {
	names := []string{
		"node 0 leases", "40 s pass", "node 1 takes the lock", "node 1 reaps", "40 s pass", "node 1 leases",
	}
	for _, name := range names {
		for _, a := range e.listActs() {
			if a.name == name {
				s = e.applyAct(s, a)
			}
		}
	}
	if s.lease[0] == nil || s.lease[1] == nil {
		e.T.Fatalf("nothing was taken over: %+v", s.record)
	}
	return s
}

// updateScene reads what is stored into the scene.
func (e *explorer) updateScene(s *scene) {
	e.T.Helper()
	ctx := e.T.Context()
	pipe := e.Client.Pipeline()
	var texts []*redis.MapStringStringCmd
	for _, key := range e.hashNames() {
		texts = append(texts, pipe.HGetAll(ctx, key))
	}
	var scores []*redis.ZSliceCmd
	for _, key := range e.setNames() {
		scores = append(scores, pipe.ZRangeWithScores(ctx, key, 0, -1))
	}
	lock := pipe.Get(ctx, e.Key(0, "lock"))
	if _, err := pipe.Exec(ctx); err != nil {
		e.T.Fatal(err)
	}
	s.texts, s.scores = map[string]map[string]string{}, map[string][]redis.Z{}
	for i, key := range e.hashNames() {
		s.texts[key] = texts[i].Val()
	}
	for i, key := range e.setNames() {
		s.scores[key] = scores[i].Val()
	}
	if got := lock.Val(); got != s.lock {
		e.T.Errorf("the lock is %q, not %q", got, s.lock)
	}
	e.describeScene(s)
}

// describeScene describes the stored data as text.
func (e *explorer) describeScene(s *scene) {
	var b strings.Builder
	hashes := func(keys ...string) {
		for _, key := range keys {
			fields := s.texts[key]
			for _, field := range slices.Sorted(maps.Keys(fields)) {
				// The lengths keep apart what could be read in two ways.
				text := fields[field]
				b.WriteString(strconv.Itoa(len(field)) + " " + field + "=" + strconv.Itoa(len(text)) + " " + text + ",")
			}
			b.WriteByte('|')
		}
	}
	hashes(e.hashNames()[:1]...)
	s.memory = b.String()
	b.Reset()
	hashes(e.hashNames()[1:]...)
	for _, key := range e.setNames() {
		for _, z := range s.scores[key] {
			member := z.Member.(string)
			b.WriteString(strconv.Itoa(len(member)) + " " + member + "=" + strconv.FormatFloat(z.Score, 'f', -1, 64) + ",")
		}
		b.WriteByte('|')
	}
	s.stored = b.String()
}

// readScene has the store read the record, and finds the end of its lease.
func (e *explorer) readScene(s *scene) {
	e.T.Helper()
	s.deadline = 0
	for _, key := range e.setNames() {
		for _, z := range s.scores[key] {
			if region, at := job.SplitScore(int64(z.Score)); z.Member == e.recordID() && region == job.RegionLeased {
				s.deadline = int64(at)
			}
		}
	}
	s.record = e.Get(e.id)
}

// restoreScene makes the stored what it was in the scene.
func (e *explorer) restoreScene(s *scene) {
	e.T.Helper()
	e.Clock.Store(s.clock)
	if e.held != nil && e.held.lock == s.lock && e.held.isSame(s) { // most acts are refused
		return
	}
	ctx := context.WithoutCancel(e.T.Context())
	pipe := e.Client.TxPipeline()
	pipe.Del(ctx, append(e.hashNames(), e.setNames()...)...)
	for key, fields := range s.texts {
		if len(fields) > 0 {
			pipe.HSet(ctx, key, fields)
		}
	}
	for key, members := range s.scores {
		if len(members) > 0 {
			pipe.ZAdd(ctx, key, members...)
		}
	}
	pipe.Set(ctx, e.Key(0, "lock"), s.lock, 0)
	if _, err := pipe.Exec(ctx); err != nil {
		e.T.Fatal(err)
	}
}

// applyAct does one act and judges it.
func (e *explorer) applyAct(s *scene, a exploreAct) *scene {
	e.T.Helper()
	after := *s
	after.story = append(append([]string{}, s.story...), a.name)
	allowed := a.apply(&after)
	after.clock = e.Clock.Load()
	e.updateScene(&after)
	e.held = &after
	if !after.isSame(s) {
		e.readScene(&after)
	}
	changed := s.stored != after.stored
	if changed {
		e.done[a.name]++
	}
	if changed && !allowed {
		e.T.Errorf("%s changed what is stored:\nbefore %s\nafter  %s", a.name, s.stored, after.stored)
	}
	if a.judge != nil && allowed {
		if err := a.judge(s, &after); err != nil {
			e.T.Errorf("%s: %v\nbefore %+v\nafter  %+v", a.name, err, s.record, after.record)
		}
	}
	e.auditOnce(&after)
	return &after
}

// auditOnce audits what was not audited before: the same is stored again and again, and
// an audit takes longer than all the rest of a step. It is about what is stored, at any
// time and under any lock.
func (e *explorer) auditOnce(s *scene) {
	e.T.Helper()
	sum := sha256.Sum256([]byte(s.memory + "|" + s.stored))
	if e.audited[sum] {
		return
	}
	e.audited[sum] = true
	for _, f := range e.MustBeConsistent(0, false).Findings {
		e.T.Errorf("audit: %+v", f)
	}
}

// isSame reports whether both scenes have the same stored data.
func (s *scene) isSame(other *scene) bool {
	return s.stored == other.stored && s.memory == other.memory
}

// stateKey names a scene by what matters for all that can follow.
func (e *explorer) stateKey(s *scene) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s %d|", s.clock-Start, s.lock, s.deadline)
	if s.record == nil {
		b.WriteString("none")
	} else {
		state := s.record.State
		state.Token, state.SettledToken, state.Revision = 0, 0, 0
		fmt.Fprintf(&b, "%+v %s", state, s.record.Definition.Queue)
	}
	for n := range explorers {
		switch seen := s.seen[n]; {
		case seen == nil:
			b.WriteString("|-")
		default:
			fmt.Fprintf(&b, "|%v", s.isCurrent(seen.State))
		}
		switch l := s.lease[n]; {
		case l == nil:
			b.WriteString("-")
		case s.record == nil:
			b.WriteString("0")
		default:
			known, stored := l.Known.State, s.record.State
			fmt.Fprintf(&b, "%v%v%v",
				known.Token == stored.Token, known.Token == stored.SettledToken, s.isCurrent(known))
		}
	}
	if a, b2 := s.lease[0], s.lease[1]; a != nil && b2 != nil {
		fmt.Fprintf(&b, "|%v", a.Known.State.Token < b2.Known.State.Token)
	}
	return b.String()
}

// isCurrent reports whether a state equals the stored one.
func (s *scene) isCurrent(known job.State) bool {
	return s.record != nil && known.Token == s.record.State.Token && known.Revision == s.record.State.Revision
}
