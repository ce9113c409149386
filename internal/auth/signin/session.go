package signin

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Session is one sign-in, as stored in its file.
type Session struct {
	Settings
	// Servers are the addresses that the token may go to, sorted.
	Servers []string `json:"servers"`
	// Subject is the claim sub of the token. Name is for display, and may be empty.
	Subject string `json:"subject"`
	Name    string `json:"name,omitempty"`
	// Bearer is the token that is sent to nodes.
	Bearer  string `json:"bearer"`
	Refresh string `json:"refresh_token,omitempty"`
	// Obtained, Issued and Expires are times of Bearer: Obtained by the clock of this host, the others by the clock of
	// the issuer.
	Obtained time.Time `json:"obtained"`
	Issued   time.Time `json:"issued,omitzero"`
	Expires  time.Time `json:"expires"`
}

func newSession(s Settings, servers []string) *Session {
	return &Session{Settings: s, Servers: normalizeServers(servers)}
}

// normalizeServers sorts addresses and removes duplicates.
func normalizeServers(servers []string) []string {
	out := make([]string, 0, len(servers))
	for _, server := range servers {
		out = append(out, strings.ToLower(strings.TrimSpace(server)))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// filePath is the path of the session's file. It depends on issuer, client and servers.
func (s *Session) filePath(dir string) string {
	sum := sha256.Sum256([]byte(strings.Join(append([]string{s.Issuer, s.ClientID}, s.Servers...), "\x00")))
	return filepath.Join(dir, hex.EncodeToString(sum[:16])+fileSuffix)
}

// coversServers reports whether the session is for all of these servers.
func (s *Session) coversServers(servers []string) bool {
	for _, server := range servers {
		if !slices.Contains(s.Servers, server) {
			return false
		}
	}
	return len(servers) > 0
}

func (s *Session) setTokens(t tokens, now time.Time) {
	s.Bearer, s.Refresh, s.Subject, s.Name = t.token, t.refresh, t.subject, t.name
	s.Obtained, s.Issued, s.Expires = now.UTC().Truncate(time.Second), t.issued.UTC(), t.expires.UTC()
}

// expiresAt is when the token expires by the clock of this host. If that clock is behind the clock of the issuer, it
// expires earlier, by the difference of the clocks.
func (s *Session) expiresAt() time.Time {
	if s.Issued.IsZero() || !s.Issued.After(s.Obtained) {
		return s.Expires
	}
	return s.Obtained.Add(s.Expires.Sub(s.Issued))
}

// maxLead is how long before its expiry a token is refreshed; for short-lived tokens it is a quarter of their lifetime.
const maxLead = time.Minute

// isFresh reports whether the token can be sent without a refresh.
func (s *Session) isFresh(now time.Time) bool {
	lead := min(maxLead, s.expiresAt().Sub(s.Obtained)/4)
	return now.Before(s.expiresAt().Add(-max(lead, 0)))
}

// isValid reports whether the token has not expired.
func (s *Session) isValid(now time.Time) bool { return now.Before(s.expiresAt()) }
