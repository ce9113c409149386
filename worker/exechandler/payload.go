package exechandler

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/fermata-io/fermata/worker/secrets"
)

// payload is the program run that a job describes.
type payload struct {
	Argv  []string          `json:"argv"`
	Env   map[string]string `json:"env"`
	Dir   string            `json:"dir"`
	Stdin string            `json:"stdin"`
}

func parse(text []byte) (*payload, error) {
	var p payload
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&p); err != nil {
		return nil, fmt.Errorf("payload: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("payload: more than one JSON value")
	}
	if len(p.Argv) == 0 {
		return nil, errors.New("payload: argv is empty")
	}
	for _, a := range p.Argv {
		if strings.ContainsRune(a, 0) {
			return nil, errors.New("payload: argv holds a NUL byte")
		}
		if secrets.Refers(a) {
			return nil, errors.New("payload: argv: a reference to a secret may stand in env and stdin only")
		}
	}
	for name, value := range p.Env {
		if err := checkVariable(name, value); err != nil {
			return nil, fmt.Errorf("payload: env: %w", err)
		}
	}
	if p.Dir != "" && (!filepath.IsAbs(p.Dir) || strings.ContainsRune(p.Dir, 0)) {
		return nil, errors.New("payload: dir is not an absolute path")
	}
	return &p, nil
}

// expand puts secrets in the place of references. Arguments have none: anybody on
// the machine can read them.
func (p *payload) expand(use *secrets.Use) error {
	var err error
	if p.Stdin, err = use.Expand(p.Stdin); err != nil {
		return fmt.Errorf("stdin: %w", err)
	}
	for name, value := range p.Env {
		full, err := use.Expand(value)
		if err != nil {
			return fmt.Errorf("env: %s: %w", name, err)
		}
		if strings.ContainsRune(full, 0) {
			return fmt.Errorf("env: %s: the secret holds a NUL byte", name)
		}
		p.Env[name] = full
	}
	return nil
}

func checkVariable(name, value string) error {
	if !isVariable(name) || strings.ContainsRune(value, 0) {
		return fmt.Errorf("%.40q is not a name, or its value holds a NUL byte", name)
	}
	return nil
}

func isVariable(name string) bool {
	return name != "" && strings.IndexFunc(name, notInName) < 0 && (name[0] < '0' || name[0] > '9')
}

func notInName(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_'
}
