package main

import (
	"encoding/json"
	"io"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/cli/config"
)

// handlerFlags set what a job runs: any handler with a payload, or a built-in handler.
type handlerFlags struct {
	handler     string
	payload     string
	payloadFile string

	url         string
	method      string
	headers     []string
	body        string
	expect      []string
	httpTimeout time.Duration

	exec  string
	env   map[string]string
	dir   string
	stdin string
}

func (h *handlerFlags) registerFlags(f *pflag.FlagSet) {
	f.StringVar(&h.handler, "handler", "", "name of the handler that a worker registered")
	f.StringVar(&h.payload, "payload", "", "input of the handler, as text")
	f.StringVar(&h.payloadFile, "payload-file", "", "file with the input of the handler; - is standard input")
	f.StringVar(&h.url, "http", "", "call this URL with the ready-made handler http")
	f.StringVar(&h.method, "method", "", "with --http: method (default GET, or POST with --body)")
	f.StringArrayVar(&h.headers, "header", nil, "with --http: header as 'Name: value'; may be repeated")
	f.StringVar(&h.body, "body", "", "with --http: body of the request")
	f.StringSliceVar(&h.expect, "expect-status", nil,
		"with --http: status codes that mean success, such as 200-299,409 (default 200-299)")
	config.DurationVar(f, &h.httpTimeout, "http-timeout", 0,
		"with --http: longest time for one request (default: --timeout)")
	f.StringVar(&h.exec, "exec", "",
		`run a command with the ready-made handler exec: a JSON array such as '["/bin/echo","hi"]'`)
	f.StringToStringVar(&h.env, "env", nil, "with --exec: environment variables as NAME=value, which workers allow "+
		"by their --exec-env")
	f.StringVar(&h.dir, "dir", "", "with --exec: working directory, an absolute path: the --exec-dir of workers or "+
		"one below it")
	f.StringVar(&h.stdin, "stdin", "", "with --exec: what the command reads from standard input")
}

// fillJob sets handler and payload from the given flags, and returns the paths that it set.
func (h *handlerFlags) fillJob(changed func(string) bool, stdin io.Reader, j *client.Job) ([]string, error) {
	if err := h.checkCombination(changed); err != nil {
		return nil, err
	}
	switch {
	case changed("http"):
		payload, err := h.requestPayload()
		j.Handler, j.Payload = "http", payload
		return []string{"handler", "payload"}, err
	case changed("exec"):
		payload, err := h.commandPayload()
		j.Handler, j.Payload = "exec", payload
		return []string{"handler", "payload"}, err
	}
	var paths []string
	if changed("handler") {
		j.Handler = h.handler
		paths = append(paths, "handler")
	}
	switch {
	case changed("payload"):
		j.Payload = []byte(h.payload)
		paths = append(paths, "payload")
	case changed("payload-file"):
		text, err := readInput(h.payloadFile, stdin)
		if err != nil {
			return nil, err
		}
		j.Payload = text
		paths = append(paths, "payload")
	}
	return paths, nil
}

func (h *handlerFlags) checkCombination(changed func(string) bool) error {
	first := ""
	for _, group := range [][]string{{"http"}, {"exec"}, {"handler", "payload", "payload-file"}} {
		for _, name := range group {
			if !changed(name) {
				continue
			}
			if first != "" {
				return usageErrorf("--%s and --%s exclude each other", first, name)
			}
			first = name
			break
		}
	}
	if changed("payload") && changed("payload-file") {
		return usageErrorf("--payload and --payload-file exclude each other")
	}
	for owner, names := range map[string][]string{
		"http": {"method", "header", "body", "expect-status", "http-timeout"}, "exec": {"env", "dir", "stdin"},
	} {
		for _, name := range names {
			if changed(name) && !changed(owner) {
				return usageErrorf("--%s needs --%s", name, owner)
			}
		}
	}
	return nil
}

func (h *handlerFlags) requestPayload() ([]byte, error) {
	q := client.HTTPRequest{Method: strings.ToUpper(h.method), URL: h.url, Body: h.body, ExpectedStatus: h.expect}
	if !strings.HasPrefix(h.url, "http://") && !strings.HasPrefix(h.url, "https://") {
		return nil, usageErrorf("--http %q: want a URL that starts with http:// or https://", h.url)
	}
	if h.httpTimeout > 0 {
		q.Timeout = h.httpTimeout.String()
	}
	for _, header := range h.headers {
		name, value, ok := strings.Cut(header, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return nil, usageErrorf("--header %q: want 'Name: value'", header)
		}
		if q.Headers == nil {
			q.Headers = map[string]string{}
		}
		q.Headers[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	return q.Payload(), nil
}

func (h *handlerFlags) commandPayload() ([]byte, error) {
	c := client.Command{Env: h.env, Dir: h.dir, Stdin: h.stdin}
	if err := json.Unmarshal([]byte(h.exec), &c.Argv); err != nil || len(c.Argv) == 0 {
		return nil, usageErrorf(`--exec %q: want a JSON array such as '["/bin/echo","hi"]'`, h.exec)
	}
	return c.Payload(), nil
}

// readInput reads a file, or standard input for "-".
func readInput(path string, stdin io.Reader) ([]byte, error) {
	if path != "-" {
		f, err := inputFile{path: path}.openFile()
		if err != nil {
			return nil, err
		}
		defer f.Close()
		stdin = f
	}
	text, err := io.ReadAll(stdin)
	if err != nil {
		return nil, newUsageError(err)
	}
	return text, nil
}
