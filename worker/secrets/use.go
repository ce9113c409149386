package secrets

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Mask stands where a secret was.
const Mask = "[secret]"

// MaxReferences bounds the references of one text.
const MaxReferences = 16

const (
	begin = "${secret:"
	// telling is how long a text is, at least, that is masked because a secret has
	// it somewhere in its middle, in bytes.
	telling = 4
)

// Use gives secrets to one destination and remembers what it gave. It is for one
// goroutine.
type Use struct {
	dir         *Dir
	destination string
	given       [][]byte // the secrets and their encodings, the longest first
}

// Refers tells whether a text has a reference, well formed or not.
func Refers(text string) bool { return strings.Contains(text, begin) }

// Expand puts secrets in the place of the references of a text.
func (u *Use) Expand(text string) (string, error) {
	var out strings.Builder
	for n := 0; ; n++ {
		before, rest, found := strings.Cut(text, begin)
		out.WriteString(before)
		if !found {
			return out.String(), nil
		}
		name, after, closed := strings.Cut(rest, "}")
		if !closed {
			return "", errors.New("a reference to a secret does not end")
		}
		if n >= MaxReferences {
			return "", fmt.Errorf("more than %d references to secrets", MaxReferences)
		}
		secret, err := u.dir.read(name, u.destination)
		if err != nil {
			return "", err
		}
		u.remember(secret)
		out.WriteString(secret)
		text = after
	}
}

// Given tells whether a secret was given.
func (u *Use) Given() bool { return len(u.given) > 0 }

func (u *Use) remember(secret string) {
	// A string always encodes.
	quoted, _ := json.Marshal(secret)
	for _, form := range []string{
		secret, string(quoted[1 : len(quoted)-1]), url.QueryEscape(secret), url.PathEscape(secret),
		strings.TrimRight(base64.StdEncoding.EncodeToString([]byte(secret)), "="),
		strings.TrimRight(base64.URLEncoding.EncodeToString([]byte(secret)), "="), hex.EncodeToString([]byte(secret)),
	} {
		if !slices.ContainsFunc(u.given, func(b []byte) bool { return string(b) == form }) {
			u.given = append(u.given, []byte(form))
		}
	}
	slices.SortStableFunc(u.given, func(a, b []byte) int { return len(b) - len(a) })
}

// Hide masks what was given in a text. The text may be the middle of a longer one:
// an end of it that is the beginning of a secret is masked too, a beginning that is
// the end of one, and a text that is nothing but a piece of one. It returns text
// itself if nothing was given.
func (u *Use) Hide(text []byte) []byte {
	if !u.Given() {
		return text
	}
	for _, secret := range u.given {
		text = bytes.ReplaceAll(text, secret, []byte(Mask))
	}
	head, tail := 0, 0
	for _, secret := range u.given {
		if len(text) >= telling && bytes.Contains(secret, text) {
			return []byte(Mask)
		}
		head, tail = max(head, overlap(secret, text)), max(tail, overlap(text, secret))
	}
	if head+tail >= len(text) && head+tail > 0 {
		return []byte(Mask)
	}
	out := bytes.Clone(text[head : len(text)-tail])
	if head > 0 {
		out = append([]byte(Mask), out...)
	}
	if tail > 0 {
		out = append(out, Mask...)
	}
	return out
}

// overlap is the length of the longest proper end of a that b begins with.
func overlap(a, b []byte) int {
	for n := min(len(a), len(b)); n > 0; n-- {
		if bytes.HasPrefix(b, a[len(a)-n:]) {
			return n
		}
	}
	return 0
}

// HideError masks what was given in the text of an error, which stays what it is
// for [errors.Is] and [errors.As].
func (u *Use) HideError(err error) error {
	if err == nil || !u.Given() {
		return err
	}
	text := []byte(err.Error())
	for _, secret := range u.given {
		text = bytes.ReplaceAll(text, secret, []byte(Mask))
	}
	return &hiddenError{err, string(text)}
}

type hiddenError struct {
	err  error
	text string
}

func (e *hiddenError) Error() string { return e.text }
func (e *hiddenError) Unwrap() error { return e.err }
