package seal

import (
	"bytes"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fermata-io/fermata/internal/job"
	"github.com/fermata-io/fermata/internal/keytest"
)

var (
	one = base64.StdEncoding.EncodeToString(keytest.Key("one"))
	two = base64.StdEncoding.EncodeToString(keytest.Key("two"))
	key = job.Key{Namespace: "n", ID: "j"}
)

func ring(t testing.TB, text string) (*Ring, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	write(t, path, text)
	r, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return r, path
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestOnlyTheJobItWasSealedForOpensIt(t *testing.T) {
	r, _ := ring(t, "k1 "+one+"\nk2 "+two+"\n")
	sealed, id := r.Seal(key, []byte("secret"))
	if bytes.Contains(sealed, []byte("secret")) || id != "k1" || len(sealed) != len("secret")+job.SealOverhead {
		t.Fatalf("%q with %s", sealed, id)
	}
	if plain, err := r.Open(key, id, sealed); err != nil || string(plain) != "secret" {
		t.Fatalf("%q, %v", plain, err)
	}
	again, _ := r.Seal(key, []byte("secret"))
	if bytes.Equal(again, sealed) {
		t.Error("the nonce is not random")
	}
	attacks := map[string]struct {
		key    job.Key
		id     string
		sealed []byte
		want   error
	}{
		"another job":       {job.Key{Namespace: "n", ID: "k"}, "k1", sealed, ErrTampered},
		"another namespace": {job.Key{Namespace: "m", ID: "j"}, "k1", sealed, ErrTampered},
		"moved border":      {job.Key{Namespace: "n\x00j"}, "k1", sealed, ErrTampered},
		"another key":       {key, "k2", sealed, ErrTampered},
		"unknown key":       {key, "k3", sealed, ErrKey},
		"nothing":           {key, "k1", nil, ErrTampered},
		"cut":               {key, "k1", sealed[:len(sealed)-1], ErrTampered},
		"plain":             {key, "k1", []byte(strings.Repeat("plain", 20)), ErrTampered},
	}
	for name, a := range attacks {
		if plain, err := r.Open(a.key, a.id, a.sealed); !errors.Is(err, a.want) || plain != nil {
			t.Errorf("%s: %q, %v", name, plain, err)
		}
	}
	for i := range sealed {
		bad := bytes.Clone(sealed)
		bad[i] ^= 1
		if _, err := r.Open(key, "k1", bad); !errors.Is(err, ErrTampered) {
			t.Errorf("byte %d changed: %v", i, err)
		}
	}
}

func TestRotation(t *testing.T) {
	r, path := ring(t, "k1 "+one)
	old, id := r.Seal(key, []byte("old"))
	write(t, path, "# rotated\nk2 "+two+"\n\nk1 "+one+"\n")
	if changed, err := r.Reload(); !changed || err != nil || r.Current() != "k2" {
		t.Fatalf("%v, %v, %s", changed, err, r.Current())
	}
	if plain, err := r.Open(key, id, old); err != nil || string(plain) != "old" {
		t.Errorf("with the old key: %q, %v", plain, err)
	}
	for _, bad := range []string{"", "k2\n", "k2 " + two + "\nk2 " + one, "k2 c2hvcnQ=", "k/2 " + two, "k2 " + two + " more", "k2 " + base64.StdEncoding.EncodeToString(make([]byte, 32))} {
		write(t, path, bad)
		if changed, err := r.Reload(); changed || err == nil || strings.Contains(err.Error(), two) {
			t.Errorf("%q: %v, %v", bad, changed, err)
		}
		if r.Fault() == nil {
			t.Errorf("%q is not reported", bad)
		}
		if r.Current() != "k2" {
			t.Errorf("%q has taken the keys away", bad)
		}
	}
	write(t, path, "k2 "+two)
	if changed, err := r.Reload(); !changed || err != nil {
		t.Fatal(err)
	}
	if _, err := r.Open(key, id, old); !errors.Is(err, ErrKey) {
		t.Errorf("with a key that is gone: %v", err)
	}
}

func FuzzOpen(f *testing.F) {
	r, _ := ring(f, "k1 "+one)
	sealed, _ := r.Seal(key, []byte("x"))
	f.Add(sealed)
	f.Fuzz(func(t *testing.T, b []byte) {
		if plain, err := r.Open(key, "k1", b); err == nil && string(plain) != "x" {
			t.Errorf("%q opens as %q", b, plain)
		}
	})
}

func BenchmarkSeal(b *testing.B) {
	r, _ := ring(b, "k1 "+one)
	payload := make([]byte, 1024)
	b.Run("seal", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			r.Seal(key, payload)
		}
	})
	sealed, id := r.Seal(key, payload)
	b.Run("open", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := r.Open(key, id, sealed); err != nil {
				b.Fatal(err)
			}
		}
	})
}
