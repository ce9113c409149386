package redistest

import (
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"strings"
	"sync"
)

// ScriptClock gives Lua scripts another TIME than the server has: who stands between clients and
// a server rewrites their commands by it. TIME is asked for as call('time') in all scripts of
// the scheduler. Nothing else goes by this clock, in particular no expiry of keys.
type ScriptClock struct {
	expression string

	mu     sync.Mutex
	hashes map[string]string // of rewritten scripts, by that of the original
	asked  int
}

const scriptTime = "call('time')"

// NewScriptClock returns the clock whose TIME is that of the server, moved by as many seconds as
// the key holds.
func NewScriptClock(key string) *ScriptClock {
	return scriptClock("local t = " + scriptTime + " return {t[1] + (call('get', '" + key + "') or 0), t[2]}")
}

// NewStoredClock returns the clock whose TIME is what the key holds, in Unix milliseconds.
func NewStoredClock(key string) *ScriptClock {
	return scriptClock("local ms = call('get', '" + key + "') return {math.floor(ms / 1000), ms % 1000 * 1000}")
}

func scriptClock(body string) *ScriptClock {
	return &ScriptClock{expression: "(function() " + body + " end)()", hashes: map[string]string{}}
}

// unknownHash is that of no script.
const unknownHash = "0000000000000000000000000000000000000000"

// Rewrite returns a command with its script, or the hash of its script, replaced. A hash that it
// has not met becomes one that the server does not know: so the client sends the script, even if
// another client with another clock may have loaded it.
func (c *ScriptClock) Rewrite(args [][]byte) [][]byte {
	at := 1
	if len(args) > 2 && bytes.EqualFold(args[0], []byte("script")) && bytes.EqualFold(args[1], []byte("load")) {
		at = 2
	} else if len(args) < 2 || !bytes.HasPrefix(bytes.ToLower(args[0]), []byte("eval")) {
		return args
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	text := string(args[at])
	changed, asks := c.hashes[text], true
	switch {
	case changed == text:
		asks = false
	case changed != "":
	case bytes.EqualFold(args[0], []byte("evalsha")):
		changed, asks = unknownHash, false
	default:
		asks = strings.Contains(text, scriptTime)
		changed = strings.ReplaceAll(text, scriptTime, c.expression)
		c.hashes[sha1Hex(text)] = sha1Hex(changed)
	}
	if asks {
		c.asked++
	}
	args = append([][]byte{}, args...)
	args[at] = []byte(changed)
	return args
}

// Asked is how many commands have asked for the time.
func (c *ScriptClock) Asked() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked
}

func sha1Hex(text string) string {
	sum := sha1.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}
