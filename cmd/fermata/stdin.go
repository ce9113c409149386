package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// noticingReader reads standard input to its end. A signal ends the read, and a notice is printed if a terminal
// is read.
type noticingReader struct {
	ctx     context.Context
	in      io.Reader
	notice  io.Writer
	noticed bool
}

func (p *noticingReader) Read(to []byte) (int, error) {
	if file, ok := p.in.(*os.File); ok && !p.noticed && term.IsTerminal(int(file.Fd())) {
		fmt.Fprintln(p.notice, "reading from standard input; end it with Ctrl-D")
	}
	p.noticed = true
	type answer struct {
		n   int
		err error
	}
	// A read that is blocked when the signal comes continues in its own buffer until the process ends.
	buffer, done := make([]byte, len(to)), make(chan answer, 1)
	go func() {
		n, err := p.in.Read(buffer)
		done <- answer{n, err}
	}()
	select {
	case a := <-done:
		return copy(to, buffer[:a.n]), a.err
	case <-p.ctx.Done():
		return 0, errInputInterrupted
	}
}

// inputWithNotice returns standard input without buffering, for single keys.
func (a *app) inputWithNotice() io.Reader {
	if p, ok := a.in.(*noticingReader); ok {
		return p.in
	}
	return a.in
}
