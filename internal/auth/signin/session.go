package signin

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Session is one sign-in, as its file has it.
type Session struct {
	Settings
	// Servers are the addresses that the token may go to, sorted.
	Servers []string `json:"servers"`
	// Subject is who has signed in, by the token's claim sub; Name is for people, and may be empty.
	Subject string `json:"subject"`
	Name    string `json:"name,omitempty"`
	// Bearer is the token that nodes are sent.
	Bearer  string `json:"bearer"`
	Refresh string `json:"refresh_token,omitempty"`
	// Obtained, Issued and Expires are of Bearer: the first by the clock of this host, the others by the issuer's.
	Obtained time.Time `json:"obtained"`
	Issued   time.Time `json:"issued,omitzero"`
	Expires  time.Time `json:"expires"`
}

func newSession(s Settings, servers []string) *Session {
	return &Session{Settings: s, Servers: normalizeServers(servers)}
}

// normalizeServers sorts addresses, without those that are there twice.
func normalizeServers(servers []string) []string {
	out := make([]string, 0, len(servers))
	for _, server := range servers {
		out = append(out, strings.ToLower(strings.TrimSpace(server)))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// path names a session's file by issuer, client and servers.
func (s *Session) path(dir string) string {
	sum := sha256.Sum256([]byte(strings.Join(append([]string{s.Issuer, s.ClientID}, s.Servers...), "\x00")))
	return filepath.Join(dir, hex.EncodeToString(sum[:16])+fileSuffix)
}

// covers tells if the session was made for all of these servers.
func (s *Session) covers(servers []string) bool {
	for _, server := range servers {
		if !slices.Contains(s.Servers, server) {
			return false
		}
	}
	return len(servers) > 0
}

func (s *Session) take(t tokens, now time.Time) {
	s.Bearer, s.Refresh, s.Subject, s.Name = t.token, t.refresh, t.subject, t.name
	s.Obtained, s.Issued, s.Expires = now.UTC().Truncate(time.Second), t.issued.UTC(), t.expires.UTC()
}

// end is when the token expires by the clock of this host. Where that clock is behind the issuer's, the
// token was issued in its future and expires as much earlier as the clocks differ.
func (s *Session) end() time.Time {
	if s.Issued.IsZero() || !s.Issued.After(s.Obtained) {
		return s.Expires
	}
	return s.Obtained.Add(s.Expires.Sub(s.Issued))
}

// maxLead is how long before its end a token is refreshed. Of one that lives shortly it is a
// quarter of its life.
const maxLead = time.Minute

// fresh tells if the token can be sent without a refresh.
func (s *Session) fresh(now time.Time) bool {
	lead := min(maxLead, s.end().Sub(s.Obtained)/4)
	return now.Before(s.end().Add(-max(lead, 0)))
}

// alive tells if nodes still take the token.
func (s *Session) alive(now time.Time) bool { return now.Before(s.end()) }
