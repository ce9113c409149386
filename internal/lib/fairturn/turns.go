// Package fairturn gives turns to calls, so that no namespace and no identity keeps the others waiting for long.
//
// Each turn is charged to the namespace and to the identity of its call. A free turn goes to the waiting call whose
// namespace and identity have few turns, and of these to the one whose namespace and identity have used turns for the
// least time (start-time fair queueing, Goyal, Vin and Cheng, 1996). In both cases the larger one of the two counts: an
// identity gains nothing by calls in several namespaces, and a namespace nothing by several identities. A call with
// short turns waits for few turns of others, no matter how many calls they make.
//
// Times count from the virtual time of all namespaces, or of all identities, which passes as turns are used. Who has used
// less than that after a pause, or is new, begins there: a pause gives no advantage, and newcomers cannot come first for
// ever. How far a name is before or behind that time is bounded: turns that are longer than this bound are shared by their
// number rather than by their time.
package fairturn

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// maxIdle bounds the names that are remembered although they have no call.
	maxIdle = 4096
	// maxLead bounds how far a name may be before or behind the virtual time. Who waited for turns of its own namespace,
	// while there were free ones for others, does not come before these for longer, and who had a long turn does not wait
	// for many short ones of many others.
	maxLead = 25 * time.Millisecond
)

// Holder is the namespace and the identity of a call. The namespace is empty for calls that are about several of them, or
// about none, and the identity where callers are not distinguished. Nothing is charged to an empty name, but calls without
// a namespace count together for the limit of a namespace.
type Holder struct{ Namespace, Identity string }

// Turns are a number of turns. They are safe for concurrent use.
type Turns struct {
	mu          sync.Mutex
	total, free int
	ofNamespace int
	namespaces  accounts
	identities  accounts
	queues      map[Holder]*queue // with waiting calls
	given       int               // turns that were given so far
}

// accounts are those of namespaces, or of identities.
type accounts struct {
	byName map[string]*account
	active int           // names with calls, without the empty one
	now    time.Duration // their virtual time
}

// account is what a namespace or an identity has, and has used.
type account struct {
	held, waiting int
	isShared      bool // of an empty name: the rest stays 0
	used          time.Duration
	last          int // the number of its last turn, or of the one before it came
}

// queue has the waiting calls of a holder.
type queue struct {
	namespace, identity *account
	calls               []chan struct{} // closed when the call has its turn
}

// New returns n free turns. A namespace has at most ofNamespace of them at once.
func New(n, ofNamespace int) *Turns {
	return &Turns{total: n, free: n, ofNamespace: ofNamespace,
		namespaces: accounts{byName: map[string]*account{}}, identities: accounts{byName: map[string]*account{}},
		queues: map[Holder]*queue{}}
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
	return t.take(t.queueOf(h))
}

// Release returns a turn that was used for some time.
func (t *Turns) Release(h Holder, used time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free++
	namespace, identity := t.namespaces.byName[h.Namespace], t.identities.byName[h.Identity]
	t.passTime(used)
	t.namespaces.charge(namespace, used)
	t.identities.charge(identity, used)
	t.count(namespace, identity, -1, 0)
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
	for _, a := range t.identities.byName {
		turns, waiting = turns+a.held, waiting+a.waiting
	}
	return turns, waiting
}

func (t *Turns) takeOrQueue(h Holder) (turn chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.queueOf(h)
	if t.take(q) {
		return nil
	}
	turn = make(chan struct{})
	q.calls = append(q.calls, turn)
	t.count(q.namespace, q.identity, 0, 1)
	t.queues[h] = q
	return turn
}

// queueOf returns the queue of a holder, which may be new.
func (t *Turns) queueOf(h Holder) *queue {
	q := t.queues[h]
	if q == nil {
		q = &queue{namespace: t.account(&t.namespaces, h.Namespace), identity: t.account(&t.identities, h.Identity)}
	}
	return q
}

// account returns the account of a name, which may be new.
func (t *Turns) account(list *accounts, name string) *account {
	a := list.byName[name]
	if a == nil {
		a = &account{isShared: name == ""}
		list.byName[name] = a
		a.setLast(t.given)
	}
	if a.isIdle() && !a.isShared {
		a.used = max(a.used, list.now)
	}
	return a
}

// take takes a free turn. While one is free, the namespaces of those who wait have as many as they may have.
func (t *Turns) take(q *queue) bool {
	if t.free == 0 || q.namespace.held >= t.ofNamespace {
		return false
	}
	t.give(q)
	return true
}

func (t *Turns) give(q *queue) {
	t.free--
	t.given++
	t.namespaces.now = max(t.namespaces.now, q.namespace.used)
	t.identities.now = max(t.identities.now, q.identity.used)
	q.namespace.setLast(t.given)
	q.identity.setLast(t.given)
	t.count(q.namespace, q.identity, 1, 0)
}

// count changes the turns and the waiting calls of a namespace and an identity.
func (t *Turns) count(namespace, identity *account, held, waiting int) {
	t.namespaces.count(namespace, held, waiting)
	t.identities.count(identity, held, waiting)
}

func (l *accounts) count(a *account, held, waiting int) {
	wasIdle := a.isIdle()
	a.held += held
	a.waiting += waiting
	switch isIdle := a.isIdle(); {
	case a.isShared || wasIdle == isIdle:
	case isIdle:
		l.active--
	default:
		l.active++
	}
}

// grantNext gives a free turn to the next call. False: none that waits may have one.
func (t *Turns) grantNext() bool {
	var next *queue
	var holder Holder
	for h, q := range t.queues {
		if q.namespace.held < t.ofNamespace && (next == nil || t.isBefore(q, next)) {
			next, holder = q, h
		}
	}
	if next == nil {
		return false
	}
	t.give(next)
	close(next.calls[0])
	t.unqueue(holder, next, 0)
	return true
}

// isBefore reports whether a queue gets a turn before another one. Queues of one namespace differ by their identities.
func (t *Turns) isBefore(q, o *queue) bool {
	return cmp.Or(cmp.Compare(q.held(), o.held()), cmp.Compare(q.identity.ownHeld(), o.identity.ownHeld()),
		cmp.Compare(t.lead(q), t.lead(o)),
		cmp.Compare(t.identities.lead(q.identity), t.identities.lead(o.identity)),
		cmp.Compare(q.last(), o.last())) < 0
}

func (q *queue) held() int { return max(q.identity.ownHeld(), q.namespace.ownHeld()) }

// lead is what a queue has used beyond the virtual time.
func (t *Turns) lead(q *queue) time.Duration {
	switch {
	case q.namespace.isShared:
		return t.identities.lead(q.identity)
	case q.identity.isShared:
		return t.namespaces.lead(q.namespace)
	}
	return max(t.namespaces.lead(q.namespace), t.identities.lead(q.identity))
}

func (l *accounts) lead(a *account) time.Duration {
	if a.isShared {
		return 0
	}
	return max(-maxLead, a.used-l.now)
}

// last is the number of the last turn of the identity, or of the namespace if identities are not distinguished.
func (q *queue) last() int {
	if q.identity.isShared {
		return q.namespace.last
	}
	return q.identity.last
}

func (a *account) ownHeld() int {
	if a.isShared {
		return 0
	}
	return a.held
}

func (l *accounts) charge(a *account, used time.Duration) {
	if !a.isShared {
		a.used = min(max(a.used, l.now-maxLead)+used, l.now+maxLead)
	}
}

// passTime lets the virtual times pass by a turn: by its part for each identity, and for each namespace. Namespaces count
// for no more than identities, because one identity may have calls in many of them.
func (t *Turns) passTime(used time.Duration) {
	identities, namespaces := t.identities.active, t.namespaces.active
	if identities > 0 {
		namespaces = min(namespaces, identities)
	}
	t.identities.now += used / time.Duration(max(1, identities))
	t.namespaces.now += used / time.Duration(max(1, namespaces))
}

func (a *account) setLast(turn int) {
	if !a.isShared {
		a.last = turn
	}
}

// unqueue removes a call from a queue, and the queue with its last call.
func (t *Turns) unqueue(h Holder, q *queue, i int) {
	q.calls = slices.Delete(q.calls, i, i+1)
	t.count(q.namespace, q.identity, 0, -1)
	if len(q.calls) == 0 {
		delete(t.queues, h)
	}
}

// removeQueued removes a waiting call; false if it has its turn.
func (t *Turns) removeQueued(h Holder, turn chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.queues[h]
	if q == nil {
		return false
	}
	i := slices.Index(q.calls, turn)
	if i < 0 {
		return false
	}
	t.unqueue(h, q, i)
	t.forgetIdle(h)
	return true
}

func (a *account) isIdle() bool { return a.held == 0 && a.waiting == 0 }

// forgetIdle forgets the names of a holder that would begin with as much if they were new. If there are too many names
// without a call, it forgets all of them.
func (t *Turns) forgetIdle(h Holder) {
	t.forgetName(&t.namespaces, h.Namespace)
	t.forgetName(&t.identities, h.Identity)
}

func (t *Turns) forgetName(list *accounts, name string) {
	a := list.byName[name]
	if a != nil && a.isIdle() && a.used <= list.now {
		delete(list.byName, name)
	}
	if len(list.byName) > maxIdle+t.total+len(t.queues) {
		maps.DeleteFunc(list.byName, func(_ string, a *account) bool { return a.isIdle() })
	}
}
