package main

import (
	"bytes"
	"testing"
	"testing/fstest"

	"github.com/google/pprof/profile"
)

// sampled is a profile of n samples of one function that another one calls.
func sampled(t *testing.T, name string, n int64) []byte {
	t.Helper()
	m := &profile.Mapping{ID: 1, File: "/somewhere/scheduler"}
	p := &profile.Profile{
		SampleType: []*profile.ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}},
		Mapping:    []*profile.Mapping{m},
	}
	var stack []*profile.Location
	for i, name := range []string{name, "main.main"} {
		f := &profile.Function{ID: uint64(i + 1), Name: name, Filename: "/somewhere/file.go", StartLine: 7}
		l := &profile.Location{ID: f.ID, Mapping: m, Address: 64 * f.ID, Line: []profile.Line{{Function: f, Line: 9}}}
		p.Function, p.Location, stack = append(p.Function, f), append(p.Location, l), append(stack, l)
	}
	if n > 0 {
		p.Sample = []*profile.Sample{{Location: stack, Value: []int64{n, 1e7 * n}}}
	}
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Profiles of any length count alike, and say nothing of where they were made.
func TestMerge(t *testing.T) {
	profiles, err := read(fstest.MapFS{
		"drain/64/scheduler.cpu": {Data: sampled(t, "main.one", 1)},
		"retry/64/scheduler.cpu": {Data: sampled(t, "main.two", 4000)},
		"retry/64/idle.cpu":      {Data: sampled(t, "main.none", 0)},
		"retry/64/notes.txt":     {Data: []byte("not a profile")},
	})
	if err != nil {
		t.Fatal(err)
	}
	merged, err := merge(profiles)
	if err != nil {
		t.Fatal(err)
	}
	if len(merged.Sample) != 2 || len(merged.Mapping) != 0 {
		t.Fatalf("%d samples, %d mappings", len(merged.Sample), len(merged.Mapping))
	}
	for _, s := range merged.Sample {
		f := s.Location[0].Line[0].Function
		if s.Value[0] != each || f.StartLine != 7 || f.Filename != "" {
			t.Errorf("%s of %q from line %d: %d samples, want %d", f.Name, f.Filename, f.StartLine, s.Value[0], each)
		}
	}
}

func TestNothingToMerge(t *testing.T) {
	if _, err := read(fstest.MapFS{}); err == nil {
		t.Error("an empty folder is no profile")
	}
	if _, err := read(fstest.MapFS{"a.cpu": {Data: []byte("x")}}); err == nil {
		t.Error("a broken file is no profile")
	}
	idle, err := read(fstest.MapFS{"a.cpu": {Data: sampled(t, "main.none", 0)}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := merge(idle); err == nil {
		t.Error("profiles without samples are none")
	}
}
