// Package fairturn gives turns to calls, so that no namespace and no identity keeps the others waiting for long.
//
// Each turn is charged to the namespace and to the identity of its call. A free turn goes to the waiting call whose
// namespace and identity have few turns, and of these to the one whose namespace and identity have used turns for the
// least time (start-time fair queueing, Goyal, Vin and Cheng, 1996). In both cases the larger one of the two counts: an
// identity gains nothing by calls in several namespaces, and a namespace nothing by several identities. The calls of a
// namespace are shared among its identities by the same rule, and those of an identity in a namespace by arrival.
//
// Times are compared with a virtual time, see [clock]. Namespaces and identities have one in common, because they are
// compared with each other, and the identities of a namespace have one of their own: they share what their namespace gets.
// How far anybody is from it is bounded, so that nobody waits for more than about half a second because of what was used
// before. Turns that are longer than this bound are shared by their number rather than by their time.
package fairturn

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// Holder is the namespace and the identity of a call. The namespace is empty for calls that are about several of them, or
// about none, and the identity where callers are not distinguished; one of them is given. Empty names have no share:
// only the limit of a namespace holds for the calls without one together.
type Holder struct{ Namespace, Identity string }

// Turns are a number of turns. They are safe for concurrent use.
type Turns struct {
	mu          sync.Mutex
	total, free int
	ofNamespace int
	now         time.Duration // virtual time of namespaces and identities
	namespaces  accounts
	identities  accounts
	queues      map[string]map[string]*queue // with waiting calls, by namespace and identity
	waiting     int                          // calls that wait
	arrived     int                          // calls that have waited so far
}

// queue has the waiting calls of a holder.
type queue struct {
	accountsOf
	holder Holder
	calls  []waitingCall
}

type waitingCall struct {
	turn    chan struct{} // closed when the call has its turn
	arrival int
}

// accountsOf are the accounts of a holder: those of its namespace, of its identity, and of the identity within the
// namespace.
type accountsOf struct{ namespace, identity, member *account }

// New returns n free turns. A namespace has at most ofNamespace of them at once.
func New(n, ofNamespace int) *Turns {
	return &Turns{total: n, free: n, ofNamespace: ofNamespace, queues: map[string]map[string]*queue{}}
}

// Take waits for a turn until the context ends. It is returned with Release. A turn that is free is taken even if the
// context has ended.
func (t *Turns) Take(ctx context.Context, h Holder) error {
	turn := t.takeOrQueue(h)
	if turn == nil {
		return nil
	}
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	if t.removeQueued(h, turn) {
		return ctx.Err()
	}
	return nil // it came just then
}

// TryTake takes a turn if one is free.
func (t *Turns) TryTake(h Holder) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.forgetIdle(h)
	return t.takeFree(t.accountsOf(h))
}

// Release returns a turn that was used for some time.
func (t *Turns) Release(h Holder, used time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free++
	a := t.accountsOf(h)
	t.charge(a, max(used, leastCharge))
	t.count(a, -1, 0)
	for t.free > 0 && t.grantNext() {
	}
	t.forgetIdle(h)
}

// IsAtLimit reports whether a namespace has as many turns as it may have.
func (t *Turns) IsAtLimit(namespace string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.namespaces.byName[namespace]
	return a != nil && a.held >= t.ofNamespace
}

// InUse is the number of turns and of calls that wait for one.
func (t *Turns) InUse() (turns, waiting int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.total - t.free, t.waiting
}

func (t *Turns) takeOrQueue(h Holder) (turn chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.accountsOf(h)
	if t.takeFree(a) {
		return nil
	}
	q := t.queueOf(h, a)
	t.arrived++
	turn = make(chan struct{})
	q.calls = append(q.calls, waitingCall{turn, t.arrived})
	t.count(a, 0, 1)
	return turn
}

// queueOf returns the queue of a holder, which may be new.
func (t *Turns) queueOf(h Holder, a accountsOf) *queue {
	q := t.queues[h.Namespace][h.Identity]
	if q != nil {
		return q
	}
	q = &queue{accountsOf: a, holder: h}
	if t.queues[h.Namespace] == nil {
		t.queues[h.Namespace] = map[string]*queue{}
	}
	t.queues[h.Namespace][h.Identity] = q
	return q
}

// clock is that of namespaces and identities. As many compete as there are of the fewer ones: one identity may have calls
// in many namespaces, and one namespace calls of many identities. Where calls have no namespace, identities compete.
func (t *Turns) clock() clock {
	competing := t.namespaces.active
	without := t.namespaces.byName[""]
	if without != nil {
		competing += without.members.active
	}
	if t.identities.active > 0 {
		competing = min(competing, t.identities.active)
	}
	return newClock(t.now, competing, maxLead)
}

// accountsOf returns the accounts of a holder, which may be new.
func (t *Turns) accountsOf(h Holder) (a accountsOf) {
	c := t.clock()
	a.namespace = t.namespaces.account(h.Namespace, c.now)
	c.bound(a.namespace)
	// A new identity is not behind its namespace, which may be before the virtual time.
	a.identity = t.identities.account(h.Identity, min(c.now, a.namespace.used))
	c.bound(a.identity)
	a.member = a.namespace.members.account(h.Identity, a.namespace.members.now)
	c.ofMembers(a.namespace).bound(a.member)
	return a
}

// takeFree takes a free turn. While one is free, the namespaces of those who wait have as many as they may have, so that
// nobody competes for it: no time passes.
func (t *Turns) takeFree(a accountsOf) bool {
	if t.free == 0 || a.namespace.held >= t.ofNamespace {
		return false
	}
	t.free--
	t.count(a, 1, 0)
	return true
}

// charge charges a turn. Unless nobody waits, its time passes for all who compete: newcomers do not come first for ever.
func (t *Turns) charge(a accountsOf, used time.Duration) {
	common := t.clock()
	ofMembers := common.ofMembers(a.namespace)
	common.charge(a.namespace, used)
	common.charge(a.identity, used)
	ofMembers.charge(a.member, used)
	if t.waiting > 0 {
		t.now = common.after(used)
	}
	if a.namespace.waiting > 0 {
		a.namespace.members.now = ofMembers.after(used)
	}
}

// count changes the turns and the waiting calls of a holder.
func (t *Turns) count(a accountsOf, held, waiting int) {
	t.waiting += waiting
	a.namespace.members.count(a.member, held, waiting)
	t.namespaces.count(a.namespace, held, waiting)
	t.identities.count(a.identity, held, waiting)
}

// grantNext gives a free turn to the next call. False: none that waits may have one.
func (t *Turns) grantNext() bool {
	next, place := t.findNext()
	if next == nil {
		return false
	}
	t.free--
	t.now += max(0, place.lead)
	next.namespace.members.now += max(0, place.leadOfMember)
	t.count(next.accountsOf, 1, 0)
	close(next.calls[0].turn)
	t.unqueue(next, 0)
	return true
}

// findNext finds the next queue of the namespaces that may have a turn: of each of them the first one, and of these the
// first one. Nil: there is none.
func (t *Turns) findNext() (next *queue, place rank) {
	c := t.clock()
	for name, queues := range t.queues {
		namespace := t.namespaces.byName[name]
		if namespace.held >= t.ofNamespace {
			continue
		}
		q, r := c.findFirst(queues, c.ofMembers(namespace))
		if next == nil || r.isBefore(place) {
			next, place = q, r
		}
	}
	return next, place
}

// findFirst finds the first queue of a namespace.
func (c clock) findFirst(queues map[string]*queue, members clock) (first *queue, place rank) {
	for _, q := range queues {
		r := c.rankOf(q, members)
		if first == nil || r.isBeforeInNamespace(place) {
			first, place = q, r
		}
	}
	return first, place
}

// rank is the place of a queue among others. The fields of the member decide among those of its namespace.
type rank struct {
	held         int
	lead         time.Duration
	heldByMember int
	leadOfMember time.Duration
	arrival      int
}

func (c clock) rankOf(q *queue, members clock) rank {
	return rank{
		held:         max(q.namespace.countedTurns(), q.identity.countedTurns()),
		lead:         max(c.lead(q.namespace), c.lead(q.identity)),
		heldByMember: q.member.countedTurns(),
		leadOfMember: members.lead(q.member),
		arrival:      q.calls[0].arrival,
	}
}

func (r rank) isBefore(o rank) bool {
	return cmp.Or(cmp.Compare(r.held, o.held), cmp.Compare(r.lead, o.lead), cmp.Compare(r.arrival, o.arrival)) < 0
}

func (r rank) isBeforeInNamespace(o rank) bool {
	return cmp.Or(cmp.Compare(r.held, o.held), cmp.Compare(r.lead, o.lead),
		cmp.Compare(r.heldByMember, o.heldByMember), cmp.Compare(r.leadOfMember, o.leadOfMember),
		cmp.Compare(r.arrival, o.arrival)) < 0
}

// unqueue removes a call from a queue, and the queue with its last call.
func (t *Turns) unqueue(q *queue, i int) {
	q.calls = slices.Delete(q.calls, i, i+1)
	t.count(q.accountsOf, 0, -1)
	if len(q.calls) > 0 {
		return
	}
	delete(t.queues[q.holder.Namespace], q.holder.Identity)
	if len(t.queues[q.holder.Namespace]) == 0 {
		delete(t.queues, q.holder.Namespace)
	}
}

// removeQueued removes a waiting call; false if it has its turn.
func (t *Turns) removeQueued(h Holder, turn chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.queues[h.Namespace][h.Identity]
	if q == nil {
		return false
	}
	i := slices.IndexFunc(q.calls, func(c waitingCall) bool { return c.turn == turn })
	if i < 0 {
		return false
	}
	t.unqueue(q, i)
	t.forgetIdle(h)
	return true
}

// forgetIdle forgets the accounts of a holder that are not worth to be kept, and all accounts while nobody has a turn.
func (t *Turns) forgetIdle(h Holder) {
	if t.free == t.total && t.waiting == 0 {
		t.now, t.namespaces, t.identities = 0, accounts{}, accounts{}
		return
	}
	kept := maxIdle + t.total + t.waiting
	c, namespace := t.clock(), t.namespaces.byName[h.Namespace]
	namespace.members.forget(h.Identity, c.ofMembers(namespace), kept)
	t.namespaces.forget(h.Namespace, c, kept)
	t.identities.forget(h.Identity, c, kept)
}
