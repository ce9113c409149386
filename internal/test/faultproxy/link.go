package faultproxy

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

const (
	chunkSize  = 64 << 10
	queueDepth = 256 // chunks held in each direction before reading stops
)

// chunk is what one read gave: bytes, or the end of the stream.
type chunk struct {
	data []byte
	err  error
	at   time.Time
}

// link is one connection through the proxy.
type link struct {
	name           string // of the client
	client, server net.Conn
	faults         *faults
	closeOnce      sync.Once
	ended          chan struct{} // closed when the link is cut
}

func newLink(name string, client, server net.Conn, f *faults) *link {
	return &link{name: name, client: client, server: server, faults: f, ended: make(chan struct{})}
}

// copyBothWays carries bytes until both directions have ended.
func (l *link) copyBothWays() {
	var wg sync.WaitGroup
	carry := func(dir Direction, from, to net.Conn) {
		queue := make(chan chunk, queueDepth)
		wg.Go(func() { l.readChunks(from, queue) })
		wg.Go(func() { l.writeChunks(dir, to, queue) })
	}
	carry(ToServer, l.client, l.server)
	carry(ToClient, l.server, l.client)
	wg.Wait()
	l.closeBoth()
}

// closeBoth closes both sides and reports whether this call did it.
func (l *link) closeBoth() (first bool) {
	l.closeOnce.Do(func() {
		first = true
		close(l.ended)
		_ = l.client.Close()
		_ = l.server.Close()
	})
	return first
}

// readChunks runs ahead of the writer, so that latency delays a stream without
// thinning it.
func (l *link) readChunks(from net.Conn, queue chan<- chunk) {
	defer close(queue)
	buf := make([]byte, chunkSize)
	for {
		n, err := from.Read(buf)
		if n > 0 && !l.pushChunk(queue, chunk{data: bytes.Clone(buf[:n]), at: time.Now()}) {
			return
		}
		if err != nil {
			l.pushChunk(queue, chunk{err: err, at: time.Now()})
			return
		}
	}
}

func (l *link) pushChunk(queue chan<- chunk, c chunk) bool {
	select {
	case queue <- c:
		return true
	case <-l.ended:
		return false
	}
}

// writeChunks passes on what the faults let through. The end of a stream is held back
// like its bytes: a network that loses packets loses that news as well. An
// orderly end leaves the other direction open; any other ends the link.
func (l *link) writeChunks(dir Direction, to net.Conn, queue <-chan chunk) {
	for c := range queue {
		if l.faults.judgeChunk(l.name, dir, c, l.ended) != passChunk {
			break
		}
		if c.err == nil {
			if _, err := to.Write(c.data); err != nil {
				break
			}
			continue
		}
		if errors.Is(c.err, io.EOF) && closeWrite(to) == nil {
			return
		}
		break
	}
	l.closeBoth()
}

func closeWrite(c net.Conn) error {
	half, ok := c.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}
