package faultproxy_test

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// echoServer answers every byte with itself, until the test ends.
func echoServer(t *testing.T) string {
	t.Helper()
	l := listenTCP(t)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				_, _ = io.Copy(c, c) // ends with the connection, however that ends
				_ = c.Close()
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	return l.Addr().String()
}

// pipeServer hands its connections to the test.
type pipeServer struct {
	addr     string
	listener *net.TCPListener
}

func newPipeServer(t *testing.T) *pipeServer {
	t.Helper()
	l := listenTCP(t)
	t.Cleanup(func() { _ = l.Close() })
	return &pipeServer{addr: l.Addr().String(), listener: l}
}

func (s *pipeServer) acceptConn(t *testing.T) net.Conn {
	t.Helper()
	_ = s.listener.SetDeadline(time.Now().Add(30 * time.Second))
	c, err := s.listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func listenTCP(t *testing.T) *net.TCPListener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l.(*net.TCPListener)
}
