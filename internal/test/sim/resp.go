package sim

import (
	"bufio"
	"bytes"
	"fmt"
	"strconv"
)

// parseCommands splits a client's data into whole commands, each a list of arguments. rest is the beginning of
// one more.
func parseCommands(b []byte) (list [][][]byte, rest []byte, err error) {
	for len(b) > 0 {
		args, tail, err := parseCommand(b)
		if err != nil || args == nil {
			return list, b, err
		}
		list, b = append(list, args), tail
	}
	return list, nil, nil
}

// parseCommand reads one command; args is nil when it is not whole yet.
func parseCommand(b []byte) (args [][]byte, rest []byte, err error) {
	n, b, ok, err := parseNumber(b, '*')
	if err != nil || !ok {
		return nil, nil, err
	}
	for range n {
		var size int
		size, b, ok, err = parseNumber(b, '$')
		if err != nil || !ok {
			return nil, nil, err
		}
		if len(b) < size+2 {
			return nil, nil, nil
		}
		args, b = append(args, b[:size]), b[size+2:]
	}
	return args, b, nil
}

// parseNumber reads a line such as *3 or $12.
func parseNumber(b []byte, mark byte) (n int, rest []byte, ok bool, err error) {
	line, rest, ok := bytes.Cut(b, []byte("\r\n"))
	if !ok {
		return 0, nil, false, nil
	}
	if len(line) == 0 || line[0] != mark {
		return 0, nil, false, fmt.Errorf("sim: a client sent %q where %q begins", line, mark)
	}
	n, err = strconv.Atoi(string(line[1:]))
	return n, rest, true, err
}

// readReply reads one whole reply and returns its bytes.
func readReply(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	out := bytes.Clone(line)
	kind, text := line[0], string(bytes.TrimSpace(line[1:]))
	switch kind {
	case '$', '=', '!':
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return out, err
		}
		body := make([]byte, n+2)
		for have := 0; have < len(body); {
			k, err := r.Read(body[have:])
			if err != nil {
				return nil, err
			}
			have += k
		}
		return append(out, body...), nil
	case '*', '~', '>', '%':
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, err
		}
		if kind == '%' {
			n *= 2
		}
		for range n {
			part, err := readReply(r)
			if err != nil {
				return nil, err
			}
			out = append(out, part...)
		}
	}
	return out, nil
}
