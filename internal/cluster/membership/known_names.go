package membership

import (
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/memberlist"
)

// nameRetention is the longest time for which memberlist may still list the name of a departed node: until it
// has probed every member in turn, and as long as it gossips about dead nodes.
const nameRetention = MaxMembers*probeInterval + time.Minute

var errTooManyMembers = fmt.Errorf("%d names are known, the maximum", MaxMembers)

// NotifyAlive is called before memberlist adds or updates a member. It bounds the number of names and what is
// kept of each. This node's own name is always accepted.
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
	case !d.allowsIP(n.Addr):
		return fmt.Errorf("%v is not in an allowed network", n.Addr)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.mu.names[n.Name]; known {
		return nil
	}
	if len(d.mu.names) >= MaxMembers-1 { // without this node's own
		d.removeDepartedNames(time.Now())
	}
	if len(d.mu.names) >= MaxMembers-1 {
		return errTooManyMembers
	}
	d.mu.names[n.Name] = time.Now() // memberlist may refuse the node later; if it does not, NotifyJoin follows
	return nil
}

// removeDepartedNames removes the names of nodes that departed long ago. The caller holds the mutex.
func (d *delegate) removeDepartedNames(now time.Time) {
	for name, departed := range d.mu.names {
		if !departed.IsZero() && now.Sub(departed) > nameRetention {
			delete(d.mu.names, name)
		}
	}
}

// recordName records when a name departed. The caller holds the mutex.
func (d *delegate) recordName(name string, state State, now time.Time) {
	if _, known := d.mu.names[name]; !known {
		return
	}
	d.mu.names[name] = time.Time{}
	if state == StateDeparted {
		d.mu.names[name] = now
	}
}
