package membership

import (
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/memberlist"
)

// rememberedFor is how long memberlist may go on listing a name after its node has departed:
// until it has probed every member in turn, and as long as it tells the dead of the living.
const rememberedFor = MaxMembers*probeInterval + time.Minute

var errTooManyMembers = fmt.Errorf("%d names are known, which is as many as may be", MaxMembers)

// NotifyAlive is asked before memberlist takes over what is said of a member. It keeps the number
// of names bounded, and what is known of each. The own name is always taken.
func (d *delegate) NotifyAlive(n *memberlist.Node) error {
	switch {
	case n.Name == d.self:
		return nil
	case n.Name == "" || len(n.Name) > maxName:
		return fmt.Errorf("a name of %d bytes", len(n.Name))
	case len(n.Meta) > memberlist.MetaMaxSize:
		return fmt.Errorf("metadata of %d bytes", len(n.Meta))
	case len(n.Addr) != 4 && len(n.Addr) != 16:
		return errors.New("no IP address")
	case !d.allows(n.Addr):
		return fmt.Errorf("%v is not in a network that nodes may be in", n.Addr)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.mu.names[n.Name]; known {
		return nil
	}
	if len(d.mu.names) >= MaxMembers-1 { // beside the own one
		d.forgetNames(time.Now())
	}
	if len(d.mu.names) >= MaxMembers-1 {
		return errTooManyMembers
	}
	d.mu.names[n.Name] = time.Now() // memberlist may not take it; NotifyJoin says so if it does
	return nil
}

// forgetNames makes room for those of nodes that departed long ago. The mutex is held.
func (d *delegate) forgetNames(now time.Time) {
	for name, departed := range d.mu.names {
		if !departed.IsZero() && now.Sub(departed) > rememberedFor {
			delete(d.mu.names, name)
		}
	}
}

// noteName notes when a name departed. The mutex is held.
func (d *delegate) noteName(name string, state State, now time.Time) {
	if _, known := d.mu.names[name]; !known {
		return
	}
	if d.mu.names[name] = (time.Time{}); state == StateDeparted {
		d.mu.names[name] = now
	}
}
