package secretfile

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, dir string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(dir, "secret")
	if err := os.WriteFile(path, []byte("open sesame"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil { // whatever the umask
		t.Fatal(err)
	}
	return path
}

func TestModesOfFiles(t *testing.T) {
	for _, c := range []struct {
		mode          os.FileMode
		read, exposed bool
	}{
		{0o400, true, false}, {0o600, true, false}, {0o440, true, false}, {0o640, true, false}, {0o660, true, false},
		{0o444, true, true}, {0o644, true, true}, {0o666, false, true}, {0o602, false, false}, {0o777, false, true},
	} {
		path := write(t, t.TempDir(), c.mode)
		text, err := Read(path, 100)
		if (err == nil) != c.read || c.read && string(text) != "open sesame" {
			t.Errorf("%04o: %q %v", c.mode, text, err)
		}
		if err != nil && (strings.Contains(err.Error(), "sesame") || !strings.Contains(err.Error(), "any user may write it") || !strings.Contains(err.Error(), path)) {
			t.Errorf("%04o: %v", c.mode, err)
		}
		var log bytes.Buffer
		WarnIfExposed(slog.New(slog.NewTextHandler(&log, nil)), path)
		if Exposed(path) != c.exposed || strings.Contains(log.String(), path) != c.exposed {
			t.Errorf("%04o: exposed %v, logged %q", c.mode, Exposed(path), &log)
		}
	}
}

// TestFilesThatOthersMayReplace: a mode of its own does not keep a file that lies where
// anybody may rename; the owners of Kubernetes' directories are not in question.
func TestFilesThatOthersMayReplace(t *testing.T) {
	for _, c := range []struct {
		mode os.FileMode
		want bool
	}{{0o700, true}, {0o755, true}, {0o775, true}, {0o777, false}, {0o777 | os.ModeSticky, true}, {0o703, false}} {
		dir := filepath.Join(t.TempDir(), "dir")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		path := write(t, dir, 0o600)
		if err := os.Chmod(dir, c.mode); err != nil {
			t.Fatal(err)
		}
		link := filepath.Join(t.TempDir(), "link")
		if err := os.Symlink(path, link); err != nil {
			t.Fatal(err)
		}
		for _, p := range []string{path, link} {
			if _, err := Read(p, 100); (err == nil) != c.want {
				t.Errorf("%v, %s: %v", c.mode, filepath.Base(p), err)
			}
		}
	}
}

// TestSecretsOfKubernetes has the links and modes by which a Secret is mounted.
func TestSecretsOfKubernetes(t *testing.T) {
	mount := t.TempDir()
	version := filepath.Join(mount, "..2026_11_25")
	if err := os.Mkdir(version, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, version, 0o440)
	for link, target := range map[string]string{"..data": "..2026_11_25", "secret": "..data/secret"} {
		if err := os.Symlink(target, filepath.Join(mount, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(mount, 0o777|os.ModeSticky|os.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(mount, "secret")
	if _, err := Read(path, 100); err != nil || Exposed(path) {
		t.Errorf("%v, exposed %v", err, Exposed(path))
	}
}

func TestBounds(t *testing.T) {
	path := write(t, t.TempDir(), 0o600)
	if _, err := Read(path, 11); err != nil {
		t.Error(err)
	}
	if text, err := Read(path, 10); err == nil || text != nil || !strings.Contains(err.Error(), "longer than 10 bytes") {
		t.Errorf("%q %v", text, err)
	}
	for _, path := range []string{"", "/nowhere/secret", t.TempDir()} {
		if _, err := Read(path, 10); err == nil {
			t.Errorf("%q is read", path)
		}
	}
}

func TestWeakKeys(t *testing.T) {
	count := func(n int, step byte) []byte {
		key := make([]byte, n)
		for i := range key {
			key[i] = byte(i) * step
		}
		return key
	}
	for _, n := range []int{16, 24, 32, 64} {
		half := make([]byte, n/2)
		_, _ = rand.Read(half)
		few := bytes.Repeat([]byte{1, 2, 3, 4, 5, 6, 7}, n)[:n]
		few[n-1] = 1 // no period
		for name, key := range map[string][]byte{
			"zeros": make([]byte, n), "one byte": bytes.Repeat([]byte{0xa5}, n), "two bytes": bytes.Repeat([]byte{1, 2}, n/2),
			"a word": bytes.Repeat([]byte("secret"), n)[:n], "twice its half": append(half, half...),
			"count": count(n, 1), "count of three": count(n, 3), "count down": count(n, 255), "few bytes": few,
		} {
			if err := CheckKey(key); err == nil {
				t.Errorf("%s of %d bytes is accepted", name, n)
			}
		}
		for range 2000 {
			key := make([]byte, n)
			_, _ = rand.Read(key)
			if err := CheckKey(key); err != nil {
				t.Fatalf("%x: %v", key, err)
			}
		}
	}
}

func TestWeakTexts(t *testing.T) {
	for _, text := range []string{"aaaaaaaaaaaaaaaaaaaa", "abababababababababab", "passwordpasswordpassword", "abcdefghijklmnopqrstuvwxyz", "00000000000000000001", "aaaaaaaaaabbbbbbbbbbaaa"} {
		if err := CheckText(text); err == nil || strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for range 2000 {
		random := make([]byte, 16)
		_, _ = rand.Read(random)
		if err := CheckText(hex.EncodeToString(random)); err != nil {
			t.Fatalf("%x: %v", random, err)
		}
	}
}
