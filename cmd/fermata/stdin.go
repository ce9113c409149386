package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// errInterrupted ends a read of standard input.
var errInterrupted = &codedError{err: errors.New("interrupted while reading standard input"), code: exitFailed}

// noticingReader is standard input as commands read it that want all of it: a signal ends the
// read, and who sits at a terminal is told that it is waited for.
type noticingReader struct {
	ctx    context.Context
	in     io.Reader
	notice io.Writer
	told   bool
}

func (p *noticingReader) Read(to []byte) (int, error) {
	if file, ok := p.in.(*os.File); ok && !p.told && term.IsTerminal(int(file.Fd())) {
		fmt.Fprintln(p.notice, "reading from standard input; end it with Ctrl-D")
	}
	p.told = true
	type answer struct {
		n   int
		err error
	}
	// A read that is under way when the signal comes goes on in memory of its own, as long
	// as the process does.
	buffer, done := make([]byte, len(to)), make(chan answer, 1)
	go func() {
		n, err := p.in.Read(buffer)
		done <- answer{n, err}
	}()
	select {
	case a := <-done:
		return copy(to, buffer[:a.n]), a.err
	case <-p.ctx.Done():
		return 0, errInterrupted
	}
}

// inputWithNotice is standard input as it is, for who reads single keys.
func (a *app) inputWithNotice() io.Reader {
	if p, ok := a.in.(*noticingReader); ok {
		return p.in
	}
	return a.in
}
