package guard

import (
	"container/list"
	"context"
	"time"
)

// unauthenticatedStreams are the open streams of unauthenticated connections. Their mutex is that of
// [unauthenticatedConns].
type unauthenticatedStreams struct {
	count int
	hosts map[string]*list.List // of *unauthenticatedStream, the oldest in front
}

// unauthenticatedStream is a stream that was opened before its connection was proved. It ends
// when its time is over, or when others need its place, unless its connection has been
// proved by then.
type unauthenticatedStream struct {
	conn   *connection
	place  *list.Element // nil: it has left
	cancel context.CancelFunc
	timer  *time.Timer
}

// admitStream finds a place for a stream of an unauthenticated connection and returns the context
// that ends it; false if the connection has as many streams as it may have.
//
// When all places are taken, the address that has most of them loses its oldest stream.
// So the streams of one address, however long they last, do not exclude other addresses.
func (u *unauthenticatedConns) admitStream(ctx context.Context, c *connection,
	life time.Duration) (context.Context, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if c.element == nil {
		return ctx, true // proved, or over
	}
	if len(c.streams) >= MaxUnauthenticatedStreams {
		return ctx, false
	}
	if u.streams.count >= MaxUnauthenticatedStreamsTotal {
		u.streams.evictOldest()
	}
	bounded, cancel := context.WithCancel(ctx)
	s := &unauthenticatedStream{conn: c, cancel: cancel}
	u.streams.addStream(s)
	s.timer = time.AfterFunc(life, func() { u.cancelStream(s) })
	context.AfterFunc(ctx, func() { u.cancelStream(s) }) // gRPC cancels the context of a stream that is over
	return bounded, true
}

// cancelStream ends a stream that has not left its place.
func (u *unauthenticatedConns) cancelStream(s *unauthenticatedStream) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.streams.removeStream(s) {
		s.cancel()
	}
}

func (p *unauthenticatedStreams) addStream(s *unauthenticatedStream) {
	l := p.hosts[s.conn.group]
	if l == nil {
		l = list.New()
		p.hosts[s.conn.group] = l
	}
	s.place = l.PushBack(s)
	if s.conn.streams == nil {
		s.conn.streams = make(map[*unauthenticatedStream]struct{})
	}
	s.conn.streams[s] = struct{}{}
	p.count++
}

// removeStream gives the place of a stream back; false if it has left before.
func (p *unauthenticatedStreams) removeStream(s *unauthenticatedStream) bool {
	if s.place == nil {
		return false
	}
	l := p.hosts[s.conn.group]
	l.Remove(s.place)
	if l.Len() == 0 {
		delete(p.hosts, s.conn.group)
	}
	s.place = nil
	delete(s.conn.streams, s)
	s.timer.Stop()
	p.count--
	return true
}

// removeStreamsOf gives the places of a connection's streams back. The streams go on.
func (p *unauthenticatedStreams) removeStreamsOf(c *connection) {
	for s := range c.streams {
		p.removeStream(s)
	}
}

// evictOldest ends the oldest stream of the address that has most.
func (p *unauthenticatedStreams) evictOldest() {
	var most *list.List
	for _, l := range p.hosts {
		if most == nil || l.Len() > most.Len() {
			most = l
		}
	}
	s := most.Front().Value.(*unauthenticatedStream)
	p.removeStream(s)
	s.cancel()
}
