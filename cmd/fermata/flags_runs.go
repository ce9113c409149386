package main

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/cli/config"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// runFlags set what happens when runs overlap, are late, or depend on others.
type runFlags struct {
	overlap    string
	limit      int32
	misfire    string
	window     time.Duration
	maxCatchUp int32
	locks      []string
	target     string
	pauseAfter int32
	maxLag     time.Duration
}

func (r *runFlags) registerFlags(f *pflag.FlagSet) {
	f.StringVar(&r.overlap, "overlap", "", "when a run is due while another is live: skip, buffer-one, buffer-all, "+
		"allow-all, cancel-other or terminate-other (default skip)")
	f.Int32Var(&r.limit, "overlap-limit", 10, "runs that may wait (buffer-all) or be live at once (allow-all)")
	f.StringVar(&r.misfire, "misfire", "", "what to do with missed scheduled times: run-once, skip or run-all "+
		"(default run-once)")
	config.DurationVar(f, &r.window, "catch-up-window", 0,
		"leave out times missed by more than this (default no limit; 60s with --misfire skip)")
	f.Int32Var(&r.maxCatchUp, "max-catch-up", 100, "with --misfire run-all: missed times that run, the newest ones")
	f.StringArrayVar(&r.locks, "lock", nil, "run only while fewer than LIMIT (default 1) live runs hold KEY, as "+
		"KEY[=LIMIT]; may be repeated; '' for none")
	f.StringVar(&r.target, "target", "", "what the job depends on, such as a host: jobs with the same target share "+
		"one backoff")
	config.DurationVar(f, &r.maxLag, "max-lag", 0, "lateness objective: by how much a run may start late; late runs are "+
		"counted and listed by 'fermata late' (default none)")
	f.Int32Var(&r.pauseAfter, "pause-after", 0, "pause the job after this many failed runs in a row (default never)")
}

// fillJob sets the fields of the given flags and returns their paths.
func (r *runFlags) fillJob(changed func(string) bool, j *client.Job) ([]string, error) {
	overlap, err := enumValue(fermatav1.OverlapPolicy_value, "OVERLAP_POLICY_", "--overlap", r.overlap)
	if err != nil {
		return nil, err
	}
	misfire, err := enumValue(fermatav1.MisfirePolicy_Policy_value, "POLICY_", "--misfire", r.misfire)
	if err != nil {
		return nil, err
	}
	locks, err := parseLocks(r.locks)
	if err != nil {
		return nil, err
	}
	missed := cmp.Or(j.MisfirePolicy, &fermatav1.MisfirePolicy{})
	fields := []struct {
		flag, path string
		set        func()
	}{
		{"overlap", "overlap_policy", func() { j.OverlapPolicy = fermatav1.OverlapPolicy(overlap) }},
		{"overlap-limit", "overlap_limit", func() { j.OverlapLimit = r.limit }},
		{"misfire", "misfire_policy.policy", func() { missed.Policy = fermatav1.MisfirePolicy_Policy(misfire) }},
		{"catch-up-window", "misfire_policy.catch_up_window",
			func() { missed.CatchUpWindow = durationpb.New(r.window) }},
		{"max-catch-up", "misfire_policy.max_catch_up", func() { missed.MaxCatchUp = r.maxCatchUp }},
		{"lock", "locks", func() { j.Locks = locks }},
		{"target", "target", func() { j.Target = r.target }},
		{"pause-after", "pause_after_failures", func() { j.PauseAfterFailures = r.pauseAfter }},
		{"max-lag", "max_lag", func() { j.MaxLag = durationpb.New(r.maxLag) }},
	}
	var paths []string
	for _, field := range fields {
		if !changed(field.flag) {
			continue
		}
		field.set()
		paths = append(paths, field.path)
		if strings.HasPrefix(field.path, "misfire_policy") {
			j.MisfirePolicy = missed
		}
	}
	return paths, nil
}

// parseLocks reads KEY or KEY=LIMIT. A key may contain "=" if a limit follows.
func parseLocks(texts []string) ([]*fermatav1.Lock, error) {
	var locks []*fermatav1.Lock
	for _, text := range nonEmpty(texts) {
		lock := &fermatav1.Lock{Key: text}
		if i := strings.LastIndexByte(text, '='); i >= 0 {
			n, err := strconv.ParseInt(text[i+1:], 10, 32)
			if err != nil || n < 1 {
				return nil, usageErrorf("--lock %q: want KEY or KEY=LIMIT with a limit of at least 1", text)
			}
			lock.Key, lock.Limit = text[:i], int32(n)
		}
		locks = append(locks, lock)
	}
	return locks, nil
}
