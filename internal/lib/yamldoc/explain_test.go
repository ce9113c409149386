package yamldoc

import "testing"

// TestUnknownKeysAreNamed, with the key of the same mapping that was meant.
func TestUnknownKeysAreNamed(t *testing.T) {
	type inner struct {
		Role  string
		Queue string `yaml:"queue-name"`
	}
	type shared struct{ Limit int }
	type outer struct {
		Rules  []*inner
		Named  map[string]inner
		Shared shared `yaml:",inline"`
		Hidden int    `yaml:"-"`
	}
	for text, want := range map[string]string{
		"rules: []\nruels: []":            "line 2: ruels: unknown key; did you mean rules?",
		"rules:\n  - {rolle: x}":          "line 2: rolle: unknown key; did you mean role?",
		"named:\n  a:\n    queue_name: x": "line 3: queue_name: unknown key; did you mean queue-name?",
		"limt: 3":                         "line 1: limt: unknown key; did you mean limit?",
		"hidden: 3":                       "line 1: hidden: unknown key",
		"speed: 3":                        "line 1: speed: unknown key",
		"rules: 3\nspeed: 3\nlimit: [1, 2]": "line 1: want a list, got the value `3`; line 2: speed: unknown key; " +
			"line 3: want a whole number, got a list",
	} {
		if err := Unmarshal([]byte(text), new(outer)); err == nil || err.Error() != want {
			t.Errorf("%q: %v\nwant %s", text, err, want)
		}
	}
}
