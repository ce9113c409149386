package main

import (
	"context"
	"os"
	"path/filepath"

	"github.com/fermata-io/fermata/bench/internal/redisd"
)

// profile is what is recorded over a measurement when that is asked for: CPU
// profiles of the first scheduler node and of the worker, if there is one, and
// Redis's commands. Each setting has a folder; later rounds overwrite it.
type profile struct {
	dir    string
	bed    *bed
	before map[string]redisd.Command
}

// startProfile returns nil when no profile is wanted, or the bed is not one of Fermata.
func (r *runner) startProfile(ctx context.Context, b *bed) (*profile, error) {
	if r.p.Profile == "" || b.cluster == nil {
		return nil, nil
	}
	dir := filepath.Join(r.p.Profile, r.measured)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	before, err := b.redis.Commands(ctx)
	if err != nil {
		return nil, err
	}
	if err := b.cluster.Nodes[0].StartProfile(ctx); err != nil {
		return nil, err
	}
	p := &profile{dir: dir, bed: b, before: before}
	if b.worker == nil {
		return p, nil
	}
	return p, b.worker.Profile(filepath.Join(dir, "worker.cpu"))
}

// end writes the files of a measurement of n jobs.
func (p *profile) end(ctx context.Context, n int) error {
	if p == nil {
		return nil
	}
	if p.bed.worker != nil {
		if err := p.bed.worker.EndProfile(); err != nil {
			return err
		}
	}
	node := p.bed.cluster.Nodes[0]
	if err := node.EndProfile(ctx, filepath.Join(p.dir, "scheduler.cpu")); err != nil {
		return err
	}
	for _, name := range []string{"allocs", "heap"} {
		if err := node.Dump(ctx, name, filepath.Join(p.dir, "scheduler."+name)); err != nil {
			return err
		}
	}
	metrics, err := node.MetricsText(ctx)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(p.dir, "metrics.txt"), metrics, 0o644); err != nil {
		return err
	}
	after, err := p.bed.redis.Commands(ctx)
	if err != nil {
		return err
	}
	table := redisd.CommandTable(p.before, after, n)
	return os.WriteFile(filepath.Join(p.dir, "commandstats.txt"), []byte(table), 0o644)
}
