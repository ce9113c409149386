package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/fermata-io/fermata/bench/internal/fermata"
)

// Environment is what the figures depend on.
type Environment struct {
	CPU, Memory, Kernel       string
	Cores                     int
	Go, Redis, Asynq, GoRedis string
	Fermata                   string
}

// machine describes the machine in one line.
func (e Environment) machine() string {
	return fmt.Sprintf("%d x %s, %s, %s", e.Cores, e.CPU, e.Memory, e.Kernel)
}

// environment looks around. What cannot be found out is left empty.
func environment(ctx context.Context) Environment {
	e := Environment{
		CPU: fieldOf("/proc/cpuinfo", "model name"), Memory: fieldOf("/proc/meminfo", "MemTotal"), Cores: runtime.NumCPU(),
		Go: runtime.Version(), Redis: output(ctx, "", "redis-server", "--version"), Kernel: output(ctx, "", "uname", "-sr"),
	}
	if text, _, ok := strings.Cut(strings.TrimPrefix(e.Redis, "Redis server v="), " "); ok {
		e.Redis = text
	}
	var kb int
	if n, _ := fmt.Sscanf(e.Memory, "%d kB", &kb); n == 1 {
		e.Memory = fmt.Sprintf("%.0f GiB", float64(kb)/(1<<20))
	}
	if root, err := fermata.Root(ctx); err == nil {
		e.Fermata = output(ctx, root, "git", "describe", "--tags", "--always", "--dirty")
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			switch m.Path {
			case "github.com/hibiken/asynq":
				e.Asynq = m.Version
			case "github.com/redis/go-redis/v9":
				e.GoRedis = m.Version
			}
		}
	}
	return e
}

// fieldOf is the value of the first line "name : value" of a file.
func fieldOf(file, name string) string {
	text, err := os.ReadFile(filepath.Clean(file))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func output(ctx context.Context, dir, name string, args ...string) string {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
