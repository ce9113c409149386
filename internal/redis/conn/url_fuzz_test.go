package conn

import (
	"strings"
	"testing"
)

// FuzzURL: a URL of any text is taken or refused, and no error shows a password.
func FuzzURL(f *testing.F) {
	for _, s := range []string{
		"redis://127.0.0.1:6379/0", "rediss://user:CANARY@host:6379", "redis+sentinel://:CANARY@a:1,b:2/master?db=3", "redis+cluster://a,b,c",
		"redis://u:CANARY%zz@h", "redis://h:99999", "://", "redis://@", "redis+sentinel://h", "redis://[::1]:1", "redis://u:CANARY@h:port", "redis://u:CANARY@?x=CANARY2",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		_, err := parseRedisURL(raw)
		_, user, found := strings.Cut(raw, "://")
		at := strings.LastIndexByte(user, '@')
		if err == nil || !found || at < 0 || strings.ContainsAny(user, "?") {
			return
		}
		_, password, has := strings.Cut(user[:at], ":")
		if has && len(password) > 5 && strings.Contains(err.Error(), password) && !strings.Contains(user[at:], password) {
			t.Fatalf("%v shows the password", err)
		}
	})
}
