package fairturn

import (
	"maps"
	"time"
)

const (
	// maxIdle bounds the accounts of a kind that are remembered although they have no call.
	maxIdle = 4096
	// maxLead bounds how far all competing accounts together are before or behind the virtual time. It is about how long a
	// call waits for others because of what its namespace or identity has used before.
	maxLead = 500 * time.Millisecond
	// leastCharge is the least that a turn is charged with.
	leastCharge = 100 * time.Microsecond
)

// clock is the virtual time of accounts that compete for turns: about what each of them has used if it always had a call
// that waited. It passes while calls wait, by the part of each turn that is one account's. If an account gets a turn that
// is before that time, the time is at least that of the account. New accounts begin there: callers with many names do not
// come first for ever.
type clock struct {
	now       time.Duration
	competing int           // accounts that compete, one at least
	most      time.Duration // how far an account may be before or behind
}

// newClock returns a clock of accounts that compete. Together they may be before or behind by the given time.
func newClock(now time.Duration, competing int, together time.Duration) clock {
	competing = max(1, competing)
	return clock{now, competing, together / time.Duration(competing)}
}

// ofMembers is the clock of the identities of a namespace. A lead there lasts longer, as the namespace has only a part of
// all turns.
func (c clock) ofMembers(namespace *account) clock {
	return newClock(namespace.members.now, namespace.members.active, c.most)
}

// after is the virtual time after a turn. It passes by no more than what is charged.
func (c clock) after(used time.Duration) time.Duration {
	return c.now + min(used, c.most)/time.Duration(c.competing)
}

// account is what a namespace or an identity has, and has used.
type account struct {
	held, waiting int
	isUnnamed     bool          // what it has used does not count for ranks
	used          time.Duration // on its clock
	members       accounts      // of a namespace: its identities
}

// lead returns what an account has used beyond the virtual time.
func (c clock) lead(a *account) time.Duration {
	c.bound(a)
	if a.isUnnamed {
		return -c.most
	}
	return a.used - c.now
}

// bound keeps an account near the virtual time: who used nothing for long, or waited for turns of its own namespace while
// others had free ones, does not come first for long, and who had a long turn does not wait for many short ones of others.
func (c clock) bound(a *account) { a.used = min(max(a.used, c.now-c.most), c.now+c.most) }

func (c clock) charge(a *account, used time.Duration) {
	c.bound(a)
	a.used += used
	c.bound(a)
}

// countedTurns is how many turns count for the rank of an account.
func (a *account) countedTurns() int {
	if a.isUnnamed {
		return 0
	}
	return a.held
}

func (a *account) isIdle() bool { return a.held == 0 && a.waiting == 0 }

// accounts are those of namespaces, or of identities.
type accounts struct {
	byName map[string]*account
	active int           // names with calls, without the empty one
	now    time.Duration // virtual time of the identities of a namespace
}

// account returns the account of a name. A new one begins at a time.
func (l *accounts) account(name string, start time.Duration) *account {
	a := l.byName[name]
	if a == nil {
		a = &account{isUnnamed: name == "", used: start}
		if l.byName == nil {
			l.byName = map[string]*account{}
		}
		l.byName[name] = a
	}
	return a
}

func (l *accounts) count(a *account, held, waiting int) {
	wasIdle := a.isIdle()
	a.held += held
	a.waiting += waiting
	switch isIdle := a.isIdle(); {
	case isIdle == wasIdle:
	case isIdle:
		a.members = accounts{}
		if !a.isUnnamed {
			l.active--
		}
	case !a.isUnnamed:
		l.active++
	}
}

// forget forgets an idle account that would begin with as much if it were new. If more than the given number of accounts
// are kept, it forgets all idle ones.
func (l *accounts) forget(name string, c clock, kept int) {
	a := l.byName[name]
	if a != nil && a.isIdle() && a.used == c.now {
		delete(l.byName, name)
	}
	if len(l.byName) > kept {
		maps.DeleteFunc(l.byName, func(_ string, a *account) bool { return a.isIdle() })
	}
}
