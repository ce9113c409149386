package main

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

// floors are the oldest versions that Fermata may be built with, and what is
// wrong with older ones. A module that go.mod does not name is not linked. A row
// stays when go.mod has long moved on: it stops a way back.
var floors = []struct{ module, oldest, why string }{
	{"google.golang.org/grpc", "v1.82.1", "a path without its slash passes rules on paths (GHSA-p77j-4mvh-x3m3, 1.79.3); resets in bulk and a filter that fails open (GHSA-hrxh-6v49-42gf)"},
	{"github.com/bsm/redislock", "v0.10.0", "it calls other commands of Redis than 0.9 did, and access rules grant these"},
	{"github.com/hashicorp/memberlist", "v0.7.0", "the gossip protocol and its limits are tested from this one on"},
	{"github.com/netresearch/go-cron", "v0.15.0", "times at a change of clocks are tested from this one on"},
	{"github.com/redis/go-redis/v9", "v9.7.3", "replies out of order after a time-out in connecting (CVE-2025-29923)"},
	{"google.golang.org/protobuf", "v1.33.0", "JSON that is decoded for ever (CVE-2024-24786)"},
	{"github.com/prometheus/client_golang", "v1.11.1", "a counter for every method a stranger makes up (CVE-2022-21698)"},
	{"gopkg.in/yaml.v3", "v3.0.1", "a panic on input that is not YAML (CVE-2022-28948)"},
	{"golang.org/x/net", "v0.38.0", "header frames without end (CVE-2023-45288), and what followed"},
	{"golang.org/x/text", "v0.3.8", "a language header that takes seconds (CVE-2022-32149)"},
	{"golang.org/x/crypto", "v0.45.0", "SSH servers that grow or panic (CVE-2025-47914, CVE-2025-58181)"},
	{"github.com/golang-jwt/jwt/v5", "v5.2.2", "a header of dots that takes memory (CVE-2025-30204)"},
	{"github.com/go-jose/go-jose/v4", "v4.0.5", "a token of dots that takes memory (CVE-2025-27144)"},
	{"github.com/miekg/dns", "v1.1.25", "identifiers that can be guessed (CVE-2019-19794)"},
}

// goFloor is the oldest toolchain of a release: the standard library is linked
// in as well, and its TLS and HTTP are mended in patch releases.
const goFloor = "v1.26.8"

func TestDependenciesAreNotBelowTheFloor(t *testing.T) {
	mod := readMod(t, "../../go.mod")
	for _, complaint := range belowFloor(mod) {
		t.Error(complaint)
	}
}

// TestFloorIsFelt proves that the check can fail.
func TestFloorIsFelt(t *testing.T) {
	old, err := modfile.Parse("go.mod", []byte(`module m
go 1.26.0
toolchain go1.26.7
require google.golang.org/grpc v1.82.0
require gopkg.in/yaml.v3 v3.0.1
require golang.org/x/net v0.60.0
replace golang.org/x/net => golang.org/x/net v0.17.0
`), nil)
	if err != nil {
		t.Fatal(err)
	}
	complaints := belowFloor(old)
	if len(complaints) != 3 || !strings.Contains(complaints[0], "grpc") || !strings.Contains(complaints[1], "replaced") || !strings.Contains(complaints[2], "go1.26.7") {
		t.Errorf("complaints %q, want one of grpc, one of the replacement, one of Go", complaints)
	}
}

func belowFloor(mod *modfile.File) []string {
	var complaints []string
	have := map[string]string{}
	for _, r := range mod.Require {
		have[r.Mod.Path] = r.Mod.Version
	}
	for _, f := range floors {
		if v, ok := have[f.module]; ok && semver.Compare(v, f.oldest) < 0 {
			complaints = append(complaints, f.module+" "+v+" is older than "+f.oldest+": "+f.why)
		}
	}
	for _, r := range mod.Replace {
		complaints = append(complaints, r.Old.Path+" is replaced: a release is built from published modules")
	}
	if mod.Toolchain == nil || semver.Compare("v"+strings.TrimPrefix(mod.Toolchain.Name, "go"), goFloor) < 0 {
		name := "no toolchain"
		if mod.Toolchain != nil {
			name = mod.Toolchain.Name
		}
		complaints = append(complaints, "go.mod names "+name+", older than "+goFloor)
	}
	return complaints
}

func readMod(t *testing.T, file string) *modfile.File {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	mod, err := modfile.Parse(file, data, nil)
	if err != nil {
		t.Fatal(err)
	}
	return mod
}
