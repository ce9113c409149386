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

// clock is the virtual time of accounts that compete for turns: what each of them has used if it always had a call that
// waited. It passes when a turn is given for which calls have waited, and is then the time of the account that gets the
// turn. Who has used less after a pause, or is new, begins there: a pause gives no advantage.
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

// lead returns what an account has used beyond the virtual time, within bounds. Who waited for turns of its own namespace,
// while there were free ones for others, is not before these for long, and who had a long turn does not wait for many
// short ones of many others.
func (c clock) lead(a *account) time.Duration {
	a.used = min(max(a.used, c.now-c.most), c.now+c.most)
	if a.isUnnamed {
		return -c.most
	}
	return a.used - c.now
}

func (c clock) charge(a *account, used time.Duration) {
	a.used = min(max(a.used, c.now-c.most)+used, c.now+c.most)
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

// account returns the account of a name, which may be new.
func (l *accounts) account(name string, now time.Duration) *account {
	a := l.byName[name]
	if a == nil {
		a = &account{isUnnamed: name == ""}
		if l.byName == nil {
			l.byName = map[string]*account{}
		}
		l.byName[name] = a
	}
	if a.isIdle() {
		a.used = max(a.used, now)
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
func (l *accounts) forget(name string, now time.Duration, kept int) {
	a := l.byName[name]
	if a != nil && a.isIdle() && a.used <= now {
		delete(l.byName, name)
	}
	if len(l.byName) > kept {
		maps.DeleteFunc(l.byName, func(_ string, a *account) bool { return a.isIdle() })
	}
}
