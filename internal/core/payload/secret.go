package payload

import (
	"fmt"
	"strings"
)

// Bounds of references to secrets.
const (
	// MaxSecretName bounds the name of a secret, in bytes.
	MaxSecretName = 63
	// MaxReferences bounds the references of one text.
	MaxReferences = 16
)

// ReferenceBegin is how a reference to a secret begins: ${secret:name}.
const ReferenceBegin = "${secret:"

// SecretUseSuffix ends the names of the files that list the permitted uses of a secret. No secret has such a
// name.
const SecretUseSuffix = ".allow"

// HasReference reports whether a text refers to a secret, in good form or not.
func HasReference(text string) bool { return strings.Contains(text, ReferenceBegin) }

// IsSecretName reports whether a secret may have a name.
func IsSecretName(name string) bool {
	if name == "" || len(name) > MaxSecretName || strings.HasSuffix(name, SecretUseSuffix) {
		return false
	}
	for i := range len(name) {
		c := name[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && (i == 0 || c != '.' && c != '_' && c != '-') {
			return false
		}
	}
	return true
}

// checkReferences returns what is wrong with the form of the references of a text; "" if it is good.
func checkReferences(text string) string {
	for n := 0; ; n++ {
		_, rest, found := strings.Cut(text, ReferenceBegin)
		if !found {
			return ""
		}
		name, after, closed := strings.Cut(rest, "}")
		switch {
		case !closed:
			return "has a reference to a secret that does not end"
		case n >= MaxReferences:
			return fmt.Sprintf("has more than %d references to secrets", MaxReferences)
		case !IsSecretName(name):
			return fmt.Sprintf("refers to a secret by what is not the name of one: "+
				"names are 1 to %d of a-z 0-9 . _ -, begin with a letter or a digit, and do not end in .allow", MaxSecretName)
		}
		text = after
	}
}
