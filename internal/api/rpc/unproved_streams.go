package rpc

import (
	"container/list"
	"context"
	"time"
)

// streamPlaces are the open streams of unproved connections. Their mutex is that of
// [unproved].
type streamPlaces struct {
	count int
	hosts map[string]*list.List // of *unprovedStream, the oldest in front
}

// unprovedStream is a stream that was opened before its connection was proved. It ends
// when its time is over, or when others need its place, unless its connection has been
// proved by then.
type unprovedStream struct {
	conn   *connection
	place  *list.Element // nil: it has left
	cancel context.CancelFunc
	timer  *time.Timer
}

// openStream finds a place for a stream of an unproved connection and returns the context
// that ends it; false if the connection has as many streams as it may have.
//
// When all places are taken, the address that has most of them loses its oldest stream.
// So the streams of one address, however long they last, keep nobody else out.
func (u *unproved) openStream(ctx context.Context, c *connection, life time.Duration) (context.Context, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if c.place == nil {
		return ctx, true // proved, or over
	}
	if len(c.streams) >= unprovedStreams {
		return ctx, false
	}
	if u.streams.count >= allUnprovedStreams {
		u.streams.evict()
	}
	bounded, cancel := context.WithCancel(ctx)
	s := &unprovedStream{conn: c, cancel: cancel}
	u.streams.add(s)
	s.timer = time.AfterFunc(life, func() { u.endStream(s) })
	context.AfterFunc(ctx, func() { u.endStream(s) }) // gRPC cancels the context of a stream that is over
	return bounded, true
}

// endStream ends a stream that has not left its place.
func (u *unproved) endStream(s *unprovedStream) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.streams.leave(s) {
		s.cancel()
	}
}

func (p *streamPlaces) add(s *unprovedStream) {
	l := p.hosts[s.conn.crowd]
	if l == nil {
		l = list.New()
		p.hosts[s.conn.crowd] = l
	}
	s.place = l.PushBack(s)
	if s.conn.streams == nil {
		s.conn.streams = make(map[*unprovedStream]struct{})
	}
	s.conn.streams[s] = struct{}{}
	p.count++
}

// leave gives the place of a stream back; false if it has left before.
func (p *streamPlaces) leave(s *unprovedStream) bool {
	if s.place == nil {
		return false
	}
	l := p.hosts[s.conn.crowd]
	if l.Remove(s.place); l.Len() == 0 {
		delete(p.hosts, s.conn.crowd)
	}
	s.place = nil
	delete(s.conn.streams, s)
	s.timer.Stop()
	p.count--
	return true
}

// leaveAll gives the places of a connection's streams back. The streams go on.
func (p *streamPlaces) leaveAll(c *connection) {
	for s := range c.streams {
		p.leave(s)
	}
}

// evict ends the oldest stream of the address that has most.
func (p *streamPlaces) evict() {
	var most *list.List
	for _, l := range p.hosts {
		if most == nil || l.Len() > most.Len() {
			most = l
		}
	}
	s := most.Front().Value.(*unprovedStream)
	p.leave(s)
	s.cancel()
}
