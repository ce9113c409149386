package conn

import (
	"crypto/tls"
	"reflect"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestParseURL(t *testing.T) {
	tests := map[string]redisURL{
		"redis://localhost":                          {addresses: []string{"localhost:6379"}},
		"redis://h:1/3":                              {addresses: []string{"h:1"}, database: 3},
		"redis://h:1?db=3":                           {addresses: []string{"h:1"}, database: 3},
		"rediss://u:p%40ss@h:1/":                     {addresses: []string{"h:1"}, username: "u", password: "p@ss", tls: true},
		"redis://:a@b@h:1":                           {addresses: []string{"h:1"}, password: "a@b"},
		"redis://[::1]:7/0":                          {addresses: []string{"[::1]:7"}},
		"redis://[::1]":                              {addresses: []string{"[::1]:6379"}},
		"redis+cluster://a:1,b:2,c":                  {addresses: []string{"a:1", "b:2", "c:6379"}, cluster: true},
		"rediss+cluster://u@a:1":                     {addresses: []string{"a:1"}, username: "u", cluster: true, tls: true},
		"redis+sentinel://a:1,b/mymaster?db=2":       {addresses: []string{"a:1", "b:26379"}, master: "mymaster", database: 2},
		"rediss+sentinel://u:p@a:1,b:2/the%20master": {addresses: []string{"a:1", "b:2"}, master: "the master", username: "u", password: "p", tls: true},
	}
	for raw, want := range tests {
		if got, err := parseRedisURL(raw); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %+v (%v), want %+v", raw, got, err, want)
		}
	}
}

// TestBadURLs also holds that no error repeats a password, or what may be one.
func TestBadURLs(t *testing.T) {
	for raw, want := range map[string]string{
		"localhost:6379":                   "scheme",
		"http://u:s3cret@h":                "scheme",
		"redis+raft://u:s3cret@h":          "scheme",
		"redis://u:s3cret%zz@h":            "%25",
		"redis://u:s3cret@":                "host is missing",
		"redis://u:s3cret@h:0":             "port",
		"redis://u:s3cret@h:99999":         "port",
		"redis://u:s3cret":                 "port",
		"redis://u:s3cret@a:1,b:2":         "several",
		"redis://u:s3cret@h/x":             "database",
		"redis://u:s3cret@h/-1":            "database",
		"redis://u:s3cret@h?db=x":          "database",
		"redis://u:s3cret@h?timeout=1s":    "db=number",
		"redis://u:s3cret@h?db=%zz":        "name=value",
		"redis+sentinel://u:s3cret@a:1":    "master",
		"redis+sentinel://u:s3cret@a/b/c":  "master",
		"redis+cluster://u:s3cret@a:1/3":   "one database",
		"redis+cluster://u:s3cret@a?db=3":  "cluster",
		"redis+cluster://u:s3cret@a:1,,b":  "host is missing",
		"redis://u:s3cret@h:1:2":           "brackets",
		"redis+sentinel://u:s3cret@a/%zz":  "%25",
		"redis://u:s3cret@h/0?db=1&db=2":   "once",
		"redis://u%zz:s3cret@h":            "%25",
		"redis://s3cret/@h/y@h:1/not-a-db": "database",
	} {
		_, err := NewClient(ClientOptions{URL: raw})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v, want a word of %q", raw, err, want)
		}
	}
}

func TestNewClient(t *testing.T) {
	single, err := NewClient(ClientOptions{URL: "redis://u:p@h:1/2", Password: "other"})
	if err != nil {
		t.Fatal(err)
	}
	defer single.Close()
	o := single.(*redis.Client).Options()
	if o.MaxRetries > 0 || !o.ContextTimeoutEnabled || o.ReadTimeout != DefaultReadTimeout || o.DialerRetries != 1 ||
		o.PoolTimeout != DefaultPoolTimeout || o.DB != 2 || o.Username != "u" || o.Password != "other" {
		t.Errorf("options %+v", o)
	}
	cluster, err := NewClient(ClientOptions{URL: "redis+cluster://a:1,b:2"})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	if c := cluster.(*redis.ClusterClient).Options(); c.ClusterStateReloadInterval != stateReload || c.MaxRetries > 0 || len(c.Addrs) != 2 {
		t.Errorf("options %+v", c)
	}
	sentinel, err := NewClient(ClientOptions{URL: "redis+sentinel://a:1,b:2/m", SentinelPassword: "s"})
	if err != nil {
		t.Fatal(err)
	}
	defer sentinel.Close()
	if c := sentinel.(*redis.Client).Options(); c.MaxRetries > 0 || !c.ContextTimeoutEnabled {
		t.Errorf("options %+v", c)
	}
}

func TestSentinelCredentialsNeedAURLOfSentinels(t *testing.T) {
	for _, o := range []ClientOptions{{URL: "redis://h", SentinelPassword: "s"}, {URL: "redis+cluster://h", SentinelUsername: "u"}} {
		if _, err := NewClient(o); err == nil || !strings.Contains(err.Error(), "does not name sentinels") {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func TestTLSNeedsAURLThatAsksForIt(t *testing.T) {
	o := ClientOptions{URL: "redis://h", TLS: func() *tls.Config { return nil }}
	if _, err := NewClient(o); err == nil || !strings.Contains(err.Error(), "not be encrypted") {
		t.Errorf("%v", err)
	}
}
