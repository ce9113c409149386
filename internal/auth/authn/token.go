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

// tokenPrefix identifies a token for people, and for scanners that search for secrets.
const tokenPrefix = "fermata_"

// minTokenLength is the minimum length of a token: shorter ones could be guessed.
const minTokenLength = 20

// NewToken makes a token of 256 random bits, and its hash for the access file.
func NewToken() (token, hash string) {
	var random [32]byte
	// crypto/rand.Read never fails.
	_, _ = rand.Read(random[:])
	token = tokenPrefix + base64.RawURLEncoding.EncodeToString(random[:])
	return token, HashToken(token)
}

// HashToken is the SHA-256 of a token in the format of the access file.
func HashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// staticToken is a token, identified by its hash.
type staticToken struct {
	name    string
	hash    [sha256.Size]byte
	expires time.Time
}

// newStaticToken reads an entry; read returns the text of a file.
func newStaticToken(e tokenEntry, read func(path string) ([]byte, error)) (staticToken, error) {
	t := staticToken{name: e.Name, expires: e.Expires.Time}
	if fault := ValidateName(e.Name); fault != "" {
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
		if len(token) < minTokenLength {
			return t, fmt.Errorf("token-file %s: holds %d characters, want at least %d; make a token with: "+
				"scheduler token new", e.TokenFile, len(token), minTokenLength)
		}
		if err := secretfile.CheckText(token); err != nil {
			return t, fmt.Errorf("token-file %s: the token could be guessed: %w; make one with: scheduler token new",
				e.TokenFile, err)
		}
		t.hash = sha256.Sum256([]byte(token))
	}
	if t.hash == sha256.Sum256(nil) {
		return t, errors.New("sha256: is that of an empty token")
	}
	return t, nil
}

// ValidateName is what is wrong with a name in the file; empty: it is valid.
func ValidateName(name string) string {
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

// findToken searches for a token. It always compares all hashes.
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
		return authz.Identity{}, true, newRefusal(authz.CauseExpired, "token %q has expired", t.name)
	}
	return authz.Identity{Subject: authz.Subject(authz.KindToken, t.name), Expires: t.expires}, true, nil
}
