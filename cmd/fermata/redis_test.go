package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/redis/redisacl"
	"github.com/fermata-io/fermata/internal/redis/redisfunc"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// runRedisCommand runs fermata redis with these arguments, and returns what it prints.
func runRedisCommand(name string, args ...string) (string, error) {
	var out bytes.Buffer
	a := &app{standardStreams: standardStreams{out: &out}, now: time.Now}
	root := a.rootCommand()
	root.SetArgs(append([]string{"redis", name}, args...))
	err := root.Execute()
	return out.String(), err
}

// TestRedisACL: the line is that of package redisacl, with the password's hash and
// without the password; names that would mean something else in it are refused.
func TestRedisACL(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (string, error) { return runRedisCommand("acl", args...) }
	text, err := run("--keyspace", "team:a", "--user", "team-a", "--password-file", file)
	if err != nil {
		t.Fatal(err)
	}
	if want := redisacl.User("team-a", redisacl.HashPassword("s3cret"), redisacl.UserRules("team:a", false)) + "\n"; text != want || strings.Contains(text, "s3cret") {
		t.Errorf("got  %s\nwant %s", text, want)
	}
	for _, functions := range []bool{false, true} {
		text, err := run("--shared", fmt.Sprint("--functions=", functions))
		if err != nil || !strings.Contains(text, redisacl.SharedRules("fermata", functions)) || strings.Contains(text, "acl|dryrun") {
			t.Errorf("for a Redis that is shared: %s (%v)", text, err)
		}
	}
	for _, args := range [][]string{
		{"--keyspace", "*"}, {"--keyspace", "a b"}, {"--keyspace", "a +@all"}, {"--keyspace", ""}, {"--user", "a b"}, {"--user", "a:b"},
		{"--user", "a\non"}, {"--password-file", filepath.Join(t.TempDir(), "none")},
	} {
		if text, err := run(args...); err == nil || text != "" {
			t.Errorf("%q: %q, %v", args, text, err)
		}
	}
}

// TestRedisFunctions: the libraries come to a server once, under the rights that are
// printed for it, and those of other versions go when asked for.
func TestRedisFunctions(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithACL("loader reset on >pw "+redisacl.LoaderRules()))
	if err := server.Client().FunctionLoad(t.Context(), "#!lua name=fermata_store_old\nredis.register_function('fermata_store_old_f', function() end)").Err(); err != nil {
		t.Fatal(err)
	}
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("pw\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (string, error) { return runRedisCommand("functions", args...) }
	names, err := run()
	if err != nil || len(strings.Fields(names)) != 2 {
		t.Fatalf("%q, %v", names, err)
	}
	to := []string{"--redis-url", "redis://" + server.Addr(), "--redis-username", "loader", "--redis-password-file", password}
	libraries := func() (list []string) {
		all, err := server.Client().FunctionList(t.Context(), redis.FunctionListQuery{}).Result()
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range all {
			list = append(list, l.Name)
		}
		return list
	}
	for i, step := range []struct {
		flag, says string
		there      int
	}{{"--load", "loaded fermata_store_", 3}, {"--load", "has them already", 3}, {"--prune", "deleted fermata_store_old", 2}} {
		text, err := run(append([]string{step.flag}, to...)...)
		if list := libraries(); err != nil || !strings.Contains(text, step.says) || len(list) != step.there {
			t.Errorf("step %d: %q, %v, libraries %v", i, text, err, list)
		}
	}
	for _, kind := range []string{"store", "locks"} {
		code, err := run("--show", kind)
		if err != nil || !strings.HasPrefix(code, "#!lua name="+redisfunc.Prefix+kind) {
			t.Errorf("%s: %.60q, %v", kind, code, err)
		}
		if err := server.Client().FunctionLoadReplace(t.Context(), code).Err(); err != nil {
			t.Errorf("what is shown of %s: %v", kind, err)
		}
	}
	if len(libraries()) != 2 {
		t.Errorf("what is shown is another library than what is loaded: %v", libraries())
	}
	for _, args := range [][]string{{"--show", "x"}, {"--show", "store", "--load"}, {"--load", "--redis-url", "http://x"}, {"--load", "--redis-password-file", "/none"}, {"--load", "--redis-sentinel-password-file", "/none"}, {"--load", "--redis-url", "redis://h", "--redis-sentinel-username", "u"}} {
		if _, err := run(args...); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
	if refused := server.Refused(); len(refused) > 0 {
		t.Errorf("refused: %v", refused)
	}
}
