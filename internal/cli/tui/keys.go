package tui

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Keys reads single keys from a terminal, without echo, until restore is called; ok is
// false if in is no terminal. Each key is a rune; the arrow keys and the like, which are
// sequences, come as 0. Control-C comes as '\x03', since the terminal makes no signal of
// it meanwhile. The channel is closed when the input ends.
//
// The goroutine that reads ends with the input, or with the first key after restore: a
// read from a terminal cannot be taken back.
func Keys(in io.Reader) (keys <-chan rune, restore func(), ok bool) {
	file, isFile := in.(*os.File)
	if !isFile || !term.IsTerminal(int(file.Fd())) {
		return nil, nil, false
	}
	before, err := term.MakeRaw(int(file.Fd()))
	if err != nil {
		return nil, nil, false
	}
	stop := make(chan struct{})
	out := make(chan rune)
	go readKeys(file, out, stop)
	return out, func() {
		close(stop)
		_ = term.Restore(int(file.Fd()), before) // nothing could be done about it
	}, true
}

func readKeys(in io.Reader, out chan<- rune, stop <-chan struct{}) {
	defer close(out)
	buf := make([]byte, 64)
	for {
		n, err := in.Read(buf)
		if err != nil {
			return
		}
		for _, key := range keysOf(buf[:n]) {
			select {
			case out <- key:
			case <-stop:
				return
			}
		}
	}
}

// keysOf splits the bytes of one read into keys. A terminal writes an escape sequence at once.
func keysOf(b []byte) []rune {
	if len(b) > 1 && b[0] == '\x1b' {
		return []rune{0}
	}
	return []rune(string(b))
}
