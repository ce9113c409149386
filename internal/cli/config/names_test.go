package config

import (
	"strings"
	"testing"
	"time"
)

// TestOtherNames: a variable or a key with another name of a flag sets it, after the usual name.
func TestOtherNames(t *testing.T) {
	load := func(t *testing.T, args ...string) (time.Duration, error) {
		s := newSettings(t, args...)
		AddAliases(s.cmd.Flags(), "op-timeout", "OTHER_TIMEOUT")
		err := Load(s.cmd, "FT")
		return *s.timeout, err
	}
	file := "--config=" + writeFile(t, "OTHER_TIMEOUT: 3s\n")
	if d, err := load(t, file); err != nil || d != 3*time.Second {
		t.Errorf("file: %v, %v", d, err)
	}
	t.Setenv("OTHER_TIMEOUT", "4s")
	if d, err := load(t, file); err != nil || d != 4*time.Second {
		t.Errorf("environment: %v, %v", d, err)
	}
	t.Setenv("FT_OP_TIMEOUT", "5s")
	if d, err := load(t, file); err != nil || d != 5*time.Second {
		t.Errorf("the usual variable: %v, %v", d, err)
	}
	if d, err := load(t, "--op-timeout=6s"); err != nil || d != 6*time.Second {
		t.Errorf("flag: %v, %v", d, err)
	}
	t.Setenv("FT_OP_TIMEOUT", "")
	t.Setenv("OTHER_TIMEOUT", "5")
	if _, err := load(t); err == nil || !strings.Contains(err.Error(), "environment variable OTHER_TIMEOUT") {
		t.Errorf("a fault does not name its variable: %v", err)
	}
	t.Setenv("OTHER_TIMEOUT", "")
	if _, err := load(t, "--config="+writeFile(t, "op-timeout: 1s\nOTHER_TIMEOUT: 2s\n")); err == nil || !strings.Contains(err.Error(), "another name of op-timeout") {
		t.Errorf("both names in one file: %v", err)
	}
}
