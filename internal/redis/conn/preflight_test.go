package conn

import (
	"errors"
	"strings"
	"testing"
)

func TestPreflightJudgement(t *testing.T) {
	good := "redis_version:7.2.11\r\nrole:master\r\nmaxmemory:1000\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\n" +
		"slave0:ip=10.0.0.2,port=6379,state=online,offset=1,lag=0\r\nmin_slaves_good_slaves:1\r\n"
	tests := []struct {
		name, info string
		demand     Durability
		class      Durability
		codes      string
		worst      Severity
	}{
		{"good", good, DurabilityReplica, DurabilityReplica, "", Info},
		{"old", strings.Replace(good, "7.2.11", "6.2.14", 1), DurabilityMemory, DurabilityReplica, "version", Fatal},
		{"two digits", strings.Replace(good, "7.2.11", "10.0.1", 1), DurabilityMemory, DurabilityReplica, "", Info},
		{"replica", strings.Replace(good, "role:master", "role:slave", 1), DurabilityMemory, DurabilityReplica, "role", Fatal},
		{"evicts", strings.Replace(good, "noeviction", "allkeys-lru", 1), DurabilityMemory, DurabilityReplica, "eviction", Fatal},
		{"no limit", strings.Replace(good, "maxmemory:1000", "maxmemory:0", 1), DurabilityMemory, DurabilityReplica, "maxmemory", Info},
		{"memory", strings.Replace(good, "aof_enabled:1", "aof_enabled:0", 1), DurabilityMemory, DurabilityMemory, "no_persistence", Warning},
		{"broken disk", good + "aof_last_write_status:err\r\n", DurabilityLocal, DurabilityReplica, "aof_error", Fatal},
		{"alone", strings.Replace(good, "online", "wait_bgsave", 1), DurabilityReplica, DurabilityLocal, "replicas durability", Fatal},
		{"no minimum", strings.Replace(good, "min_slaves", "x", 1), DurabilityReplica, DurabilityLocal, "min_replicas durability", Fatal},
		{"no minimum is demanded", strings.Replace(good, "min_slaves", "x", 1), DurabilityLocal, DurabilityLocal, "min_replicas", Info},
		{"embedded", "connected_clients:1\r\n", DurabilityMemory, DurabilityMemory, "embedded", Warning},
		{"loads nothing", good + "replay:refused\r\n", DurabilityReplica, DurabilityMemory, "default_user", Fatal},
		{"does not say what it loads", good + "replay:unknown\r\n", DurabilityReplica, DurabilityReplica, "default_user", Info},
		{"does not say, and is alone", strings.Replace(good, "online", "wait_bgsave", 1) + "replay:unknown\r\n", DurabilityReplica, DurabilityLocal, "default_user replicas durability", Fatal},
	}
	for _, tt := range tests {
		r := Report{Class: DurabilityReplica}
		o := PreflightOptions{Durability: tt.demand, Replicas: 1}
		i := parseInfo("", "# Server\r\n"+tt.info)
		switch i.text("replay") {
		case "refused":
			i.replay.refusedCommand = "set"
		case "unknown":
			i.replay.askError = errors.New("NOPERM")
		}
		r.judgeServer(i, o)
		r.compareWithDemand(o)
		var codes []string
		for _, f := range r.Findings {
			codes = append(codes, f.Code)
			if f.Text == "" {
				t.Errorf("%s: finding %s says nothing", tt.name, f.Code)
			}
		}
		if r.Class != tt.class || strings.Join(codes, " ") != tt.codes || r.Worst() != tt.worst {
			t.Errorf("%s: class %s, findings %v, worst %s", tt.name, r.Class, codes, r.Worst())
		}
	}
}
