package secrets

import (
	"errors"
	"fmt"
	"strings"

	"github.com/fermata-io/fermata/internal/core/payload"
	"github.com/fermata-io/fermata/internal/lib/mask"
)

// Mask replaces a masked secret.
const Mask = mask.Mark

// MaxReferences is the maximum number of references in one text.
const MaxReferences = payload.MaxReferences

const referenceStart = payload.ReferenceBegin

// Resolver resolves references for one destination and remembers the secrets that it gave. It is not safe for
// concurrent use.
type Resolver struct {
	dir         *Dir
	destination string
	masker      mask.Masker
}

// Refers reports whether a text has a reference, well formed or not.
func Refers(text string) bool { return payload.HasReference(text) }

// Expand replaces the references in a text by their secrets.
func (u *Resolver) Expand(text string) (string, error) {
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

// Given reports whether a secret was given.
func (u *Resolver) Given() bool { return !u.masker.Empty() }

// Margin is how many bytes of a text [Resolver.MaskStart] and [Resolver.MaskEnd] have to know beyond the part that is
// shown: a secret may begin in one and end in the other. It is 0 if no secret was given.
func (u *Resolver) Margin() int { return u.masker.Margin() }

// MaskStart masks what was given in the first n bytes of a text, in the encodings that package internal/lib/mask
// lists. If the text was cut off less than [Resolver.Margin] bytes behind them, it drops bytes that the start of a
// secret could be in. It takes a time that depends on the lengths of the text and of the secrets only: some 4 ms for
// 1 KiB and a short secret, 200 ms for 64 KiB and a secret of 4 KiB.
func (u *Resolver) MaskStart(text []byte, n int, cut bool) []byte {
	return u.masker.MaskStart(text, n, cut)
}

// MaskEnd masks what was given in the last n bytes of a text, like [Resolver.MaskStart].
func (u *Resolver) MaskEnd(text []byte, n int, cut bool) []byte {
	return u.masker.MaskEnd(text, n, cut)
}

// HasSecret reports whether a text has a given secret, in one of the encodings that [Resolver.MaskError] masks. A text
// that would be masked as a whole counts as one that has.
func (u *Resolver) HasSecret(text string) bool {
	return u.Given() && string(u.masker.MaskText([]byte(text))) != text
}

// MaskError masks the given secrets in the text of an error. [errors.Is] and [errors.As] see the original error.
func (u *Resolver) MaskError(err error) error {
	if err == nil || !u.Given() {
		return err
	}
	return &hiddenError{err, string(u.masker.MaskText([]byte(err.Error())))}
}

type hiddenError struct {
	err  error
	text string
}

func (e *hiddenError) Error() string { return e.text }
func (e *hiddenError) Unwrap() error { return e.err }
