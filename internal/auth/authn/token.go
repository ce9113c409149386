package authn

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/lib/secretfile"
)

// tokenPrefix tells people, and scanners for secrets, what a token is.
const tokenPrefix = "fermata_"

// minToken is the length of the shortest token that a file may hold: below it, it
// could be guessed.
const minToken = 20

// NewToken makes a token of 256 random bits, and the hash by which the access file
// knows it.
func NewToken() (token, hash string) {
	var random [32]byte
	// crypto/rand.Read never fails.
	_, _ = rand.Read(random[:])
	token = tokenPrefix + base64.RawURLEncoding.EncodeToString(random[:])
	return token, HashToken(token)
}

// HashToken is the sha256 of a token as the access file has it.
func HashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// staticToken is a token by its hash.
type staticToken struct {
	name    string
	hash    [sha256.Size]byte
	expires time.Time
}

// newToken reads an entry; read gives the text of a file.
func newToken(e tokenEntry, read func(path string) ([]byte, error)) (staticToken, error) {
	t := staticToken{name: e.Name, expires: e.Expires.Time}
	if fault := NameFault(e.Name); fault != "" {
		return t, fmt.Errorf("name: %q %s", e.Name, fault)
	}
	switch {
	case (e.SHA256 == "") == (e.TokenFile == ""):
		return t, errors.New("want either sha256 or token-file, and not an empty one")
	case e.SHA256 != "":
		sum, err := hex.DecodeString(e.SHA256)
		if err != nil || len(sum) != sha256.Size {
			return t, errors.New("sha256: want 64 hexadecimal digits; make a token with: scheduler token new")
		}
		copy(t.hash[:], sum)
	default:
		text, err := read(e.TokenFile)
		if err != nil {
			return t, fmt.Errorf("token-file: %w", err)
		}
		token := strings.TrimSpace(string(text))
		if len(token) < minToken {
			return t, fmt.Errorf("token-file %s: holds %d characters, want at least %d; make a token with: scheduler token new", e.TokenFile, len(token), minToken)
		}
		if err := secretfile.CheckText(token); err != nil {
			return t, fmt.Errorf("token-file %s: the token could be guessed: %w; make one with: scheduler token new", e.TokenFile, err)
		}
		t.hash = sha256.Sum256([]byte(token))
	}
	if t.hash == sha256.Sum256(nil) {
		return t, errors.New("sha256: is that of an empty token")
	}
	return t, nil
}

// NameFault says what is wrong with a name in the file, nothing if it is good.
func NameFault(name string) string {
	if name == "" || len(name) > 128 {
		return "is not 1 to 128 characters"
	}
	for _, r := range name {
		if !strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-", r) {
			return "has other characters than letters, digits, dots, dashes and underscores"
		}
	}
	return ""
}

// findToken looks for a token. All hashes are compared, whichever fits.
func findToken(tokens []staticToken, token string, now time.Time) (authz.Identity, bool, error) {
	hash := sha256.Sum256([]byte(token))
	found := -1
	for i := range tokens {
		if subtle.ConstantTimeCompare(tokens[i].hash[:], hash[:]) == 1 {
			found = i
		}
	}
	if found < 0 {
		return authz.Identity{}, false, nil
	}
	t := tokens[found]
	if !t.expires.IsZero() && !now.Before(t.expires) {
		return authz.Identity{}, true, refuse(authz.CauseExpired, "token %q has expired", t.name)
	}
	return authz.Identity{Subject: authz.Subject(authz.KindToken, t.name), Expires: t.expires}, true, nil
}
