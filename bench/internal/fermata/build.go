// Package fermata runs Fermata as its users do. It starts scheduler processes, registers jobs with
// the client package, and reads /metrics and Redis.
package fermata

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// profiler is added to the scheduler of a build for profiling: the product itself
// has no such endpoint.
//
//go:embed profiler.go.txt
var profiler []byte

// Root is the folder of the product, seen from the folder of this module.
func Root(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", err
	}
	mod := strings.TrimSpace(string(out))
	if filepath.Base(filepath.Dir(mod)) != "bench" {
		return "", fmt.Errorf("run this in the folder bench, not beside %s", mod)
	}
	return filepath.Dir(filepath.Dir(mod)), nil
}

// Kind is how a scheduler is built.
type Kind int

const (
	Released  Kind = iota // as `make build` does
	Profiling             // the same, and serves /debug/pprof at the address in BENCH_PPROF
	Tried                 // as go build does without flags, which has nearly all of it in its cache: not to be measured
)

// Build makes the scheduler in dir and returns where it is.
func Build(ctx context.Context, dir string, kind Kind) (string, error) {
	root, err := Root(ctx)
	if err != nil {
		return "", err
	}
	out := filepath.Join(dir, "scheduler")
	args, env := []string{"build", "-o", out}, os.Environ()
	if kind != Tried {
		args, env = append(args, "-trimpath", "-pgo="+filepath.Join(root, "scripts/hot.pgo")), append(env, "CGO_ENABLED=0")
	}
	switch kind {
	case Released:
		args = append(args, "-ldflags", "-s -w")
	case Profiling:
		overlay, err := overlayProfiler(root, dir)
		if err != nil {
			return "", err
		}
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./cmd/scheduler")...)
	cmd.Dir, cmd.Env = root, env
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the scheduler: %w\n%s", err, text)
	}
	return out, nil
}

// overlayProfiler describes a file that is not in the product's folder.
func overlayProfiler(root, dir string) (string, error) {
	source := filepath.Join(dir, "profiler.go")
	if err := os.WriteFile(source, profiler, 0o600); err != nil {
		return "", err
	}
	text, err := json.Marshal(map[string]any{
		"Replace": map[string]string{filepath.Join(root, "cmd/scheduler/profiler.go"): source},
	})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, text, 0o600)
}
