// Package redisd runs a fresh redis-server for one measurement.
package redisd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/bench/internal/proc"
)

// Options of a server.
type Options struct {
	Dir string // for its files, made if missing
	AOF bool   // appendonly with everysec; otherwise nothing is written to disk
	// Args are further arguments, as "--hz", "100".
	Args []string
}

// Server is a redis-server on loopback.
type Server struct {
	*proc.Process
	Addr   string
	Client *redis.Client
}

// Start runs a server and returns when it answers.
func Start(ctx context.Context, o Options) (*Server, error) {
	ports, err := proc.FreePorts(1)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	appendonly := "no"
	if o.AOF {
		appendonly = "yes"
	}
	args := append([]string{
		"--port", strconv.Itoa(ports[0]), "--bind", "127.0.0.1", "--dir", o.Dir, "--save", "",
		"--appendonly", appendonly, "--appendfsync", "everysec", "--maxmemory-policy", "noeviction",
	}, o.Args...)
	p, err := proc.Start(proc.Spec{
		Name: "redis-server", Path: "redis-server", Args: args, Log: filepath.Join(o.Dir, "redis.log"),
	})
	if err != nil {
		return nil, err
	}
	addr := fmt.Sprintf("127.0.0.1:%d", ports[0])
	s := &Server{Process: p, Addr: addr, Client: redis.NewClient(&redis.Options{
		Addr: addr, MaxRetries: -1, ReadTimeout: 30 * time.Second,
	})}
	for s.Client.Ping(ctx).Err() != nil {
		if err := errors.Join(p.Failed(), ctx.Err()); err != nil {
			s.Stop()
			return nil, err
		}
		time.Sleep(10 * time.Millisecond)
	}
	return s, nil
}

// URL names the server's database 0.
func (s *Server) URL() string { return "redis://" + s.Addr + "/0" }

// Stop ends the server.
func (s *Server) Stop() {
	_ = s.Client.Close()
	s.Kill() // nothing of it is kept
}

// Info are the fields of INFO's sections; none means the default ones.
func (s *Server) Info(ctx context.Context, sections ...string) (map[string]string, error) {
	text, err := s.Client.Info(ctx, sections...).Result()
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			out[name] = value
		}
	}
	return out, nil
}

// UsedMemory is used_memory in bytes.
func (s *Server) UsedMemory(ctx context.Context) (int64, error) {
	fields, err := s.Info(ctx, "memory")
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(fields["used_memory"], 10, 64)
}
