package job

import (
	"strconv"
	"strings"
)

// MaxAddress bounds an address of a node, in bytes.
const MaxAddress = 261 // a DNS name of 253, a colon, a port, and a bracket or two

// IsAddress reports whether a text is host:port and nothing else. An address that another process sent is
// dialled only in this form, so that it cannot be a target with a scheme, a path or a second line.
func IsAddress(text string) bool {
	if len(text) > MaxAddress {
		return false
	}
	i := strings.LastIndexByte(text, ':')
	if i < 0 {
		return false
	}
	host, port := text[:i], text[i+1:]
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || port[0] == '0' {
		return false
	}
	inner, opened := strings.CutPrefix(host, "[")
	inner, closed := strings.CutSuffix(inner, "]")
	if opened != closed || inner == "" {
		return false
	}
	for _, c := range []byte(inner) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '-', c == '_':
		case opened && (c == ':' || c == '%'):
		default:
			return false
		}
	}
	return true
}
