package secrets

import (
	"errors"
	"fmt"
	"strings"

	"github.com/fermata-io/fermata/internal/core/payload"
	"github.com/fermata-io/fermata/internal/lib/mask"
)

// Mask stands where a secret was.
const Mask = mask.Mark

// MaxReferences bounds the references of one text.
const MaxReferences = payload.MaxReferences

const referenceStart = payload.ReferenceBegin

// Use gives secrets to one destination and remembers what it gave. It is for one
// goroutine.
type Use struct {
	dir         *Dir
	destination string
	masker      mask.Masker
}

// Refers tells whether a text has a reference, well formed or not.
func Refers(text string) bool { return payload.HasReference(text) }

// Expand puts secrets in the place of the references of a text.
func (u *Use) Expand(text string) (string, error) {
	var out strings.Builder
	for n := 0; ; n++ {
		before, rest, found := strings.Cut(text, referenceStart)
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
		secret, err := u.dir.readSecret(name, u.destination)
		if err != nil {
			return "", err
		}
		u.masker.Add(secret)
		out.WriteString(secret)
		text = after
	}
}

// Given tells whether a secret was given.
func (u *Use) Given() bool { return !u.masker.Empty() }

// Hide masks what was given in a text, in the encodings that package
// internal/lib/mask lists. The text may be the middle of a longer one:
// an end of it that is the beginning of a secret is masked too, a beginning that is
// the end of one, and a text that is nothing but a piece of one. It returns text
// itself if there is nothing to mask.
func (u *Use) Hide(text []byte) []byte { return u.masker.Piece(text) }

// HideError masks what was given in the text of an error, which stays what it is
// for [errors.Is] and [errors.As].
func (u *Use) HideError(err error) error {
	if err == nil || !u.Given() {
		return err
	}
	return &hiddenError{err, string(u.masker.Whole([]byte(err.Error())))}
}

type hiddenError struct {
	err  error
	text string
}

func (e *hiddenError) Error() string { return e.text }
func (e *hiddenError) Unwrap() error { return e.err }
