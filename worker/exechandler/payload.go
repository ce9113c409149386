package exechandler

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
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
	}
	for name, value := range p.Env {
		if err := checkVariable(name, value); err != nil {
			return nil, fmt.Errorf("payload: env: %w", err)
		}
	}
	if p.Dir == "" {
		p.Dir = "/"
	}
	if !filepath.IsAbs(p.Dir) || strings.ContainsRune(p.Dir, 0) {
		return nil, errors.New("payload: dir is not an absolute path")
	}
	return &p, nil
}

// loaders are variables that make a dynamic loader, a shell or an interpreter run
// code of the payload's choice; PATH and FERMATA_ belong to the worker. A * ends
// a prefix.
var loaders = []string{
	"LD_*", "DYLD_*", "GCONV_PATH", "GLIBC_TUNABLES", "MALLOC_*", "BASH_*", "ENV", "SHELLOPTS", "PS4", "IFS", "PERL*",
	"PYTHON*", "RUBY*", "NODE_*", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "CLASSPATH", "GIT_*", "EDITOR",
	"PAGER", "LESSOPEN", "PATH", "FERMATA_*",
}

func checkVariable(name, value string) error {
	if name == "" || strings.ContainsRune(value, 0) || strings.IndexFunc(name, notInName) >= 0 || name[0] >= '0' && name[0] <= '9' {
		return fmt.Errorf("%.40q is not a name, or its value holds a NUL byte", name)
	}
	for _, l := range loaders {
		prefix, isPrefix := strings.CutSuffix(l, "*")
		if upper := strings.ToUpper(name); upper == l || isPrefix && strings.HasPrefix(upper, prefix) {
			return fmt.Errorf("%s cannot be set", name)
		}
	}
	return nil
}

func notInName(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_'
}
