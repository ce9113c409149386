package payloadkeys

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/test/keytest"
)

var (
	one = base64.StdEncoding.EncodeToString(keytest.Key("one"))
	two = base64.StdEncoding.EncodeToString(keytest.Key("two"))
)

func ring(t testing.TB, text string) (*Ring, string) { return ringOf(t, text, Options{}) }

func ringOf(t testing.TB, text string, o Options) (*Ring, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	write(t, path, text)
	r, err := Load(path, o)
	if err != nil {
		t.Fatal(err)
	}
	return r, path
}

// definition is a job that has everything that a payload is bound to.
func definition() job.Definition {
	return job.Definition{
		Key: job.Key{Namespace: "n", ID: "j"}, Queue: "mail", Handler: "send", Timeout: time.Minute,
		Retry: backoff.Retry{MaxAttempts: 3}, Labels: map[string]string{"a": "b", "c": "d"},
	}
}

// sealed is the definition with a payload that the ring has sealed for it.
func sealed(r *Ring, payload string) job.Definition {
	d := definition()
	d.Payload, d.PayloadKey = r.Encrypt(&d, []byte(payload))
	return d
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// opens fails unless the ring opens the definition, or refuses it for the reason.
func opens(t *testing.T, r *Ring, d job.Definition, want error, what string) {
	t.Helper()
	plain, err := r.Decrypt(&d)
	if !errors.Is(err, want) || (err == nil) != (string(plain) == "secret") || err != nil && plain != nil {
		t.Errorf("%s: %q, %v; want %v", what, plain, err, want)
	}
}

func TestOnlyTheJobItWasSealedForOpensIt(t *testing.T) {
	for version := job.SealOfJob; version <= job.SealOfWork; version++ {
		r, _ := ring(t, "k1 "+one+"\nk2 "+two+"\n")
		if version == job.SealOfWork {
			r.UseVersion2()
		}
		d := sealed(r, "secret")
		if bytes.Contains(d.Payload, []byte("secret")) || d.PayloadKey != "k1" || d.PayloadSize() != len("secret") ||
			d.SealVersion() != version || r.Version() != version {
			t.Fatalf("%q with %s, version %d", d.Payload, d.PayloadKey, d.SealVersion())
		}
		opens(t, r, d, nil, "what was sealed")
		if again := sealed(r, "secret"); bytes.Equal(again.Payload, d.Payload) {
			t.Error("the nonce is not random")
		}
		attacks := map[string]struct {
			change func(*job.Definition)
			want   error
		}{
			"another job":       {func(d *job.Definition) { d.ID = "k" }, ErrTampered},
			"another namespace": {func(d *job.Definition) { d.Namespace = "m" }, ErrTampered},
			"moved border":      {func(d *job.Definition) { d.Namespace, d.ID = "n\x00j", "" }, ErrTampered},
			"another key":       {func(d *job.Definition) { d.PayloadKey = "k2" }, ErrTampered},
			"unknown key":       {func(d *job.Definition) { d.PayloadKey = "k3" }, ErrKey},
			"nothing":           {func(d *job.Definition) { d.Payload = nil }, ErrTampered},
			"cut":               {func(d *job.Definition) { d.Payload = d.Payload[:len(d.Payload)-1] }, ErrTampered},
			"plain": {func(d *job.Definition) { d.Payload = []byte(strings.Repeat("plain", 20)) },
				ErrTampered},
		}
		for name, a := range attacks {
			bad := d
			a.change(&bad)
			opens(t, r, bad, a.want, fmt.Sprint(name, ", version ", version))
		}
		for i := range d.Payload {
			for bit := range 8 {
				bad := d
				bad.Payload = bytes.Clone(d.Payload)
				bad.Payload[i] ^= 1 << bit
				opens(t, r, bad, ErrTampered, fmt.Sprint("bit ", bit, " of byte ", i))
			}
		}
	}
}

// TestWhatAWorkerIsGivenIsBound: a payload of version 2 opens with the queue, handler, timeout,
// labels and attempts that it was sealed with and no others; what decides when it runs is free.
func TestWhatAWorkerIsGivenIsBound(t *testing.T) {
	r, _ := ring(t, "k1 "+one)
	old := sealed(r, "secret")
	r.UseVersion2()
	d := sealed(r, "secret")
	for name, change := range map[string]func(*job.Definition){
		"queue":             func(d *job.Definition) { d.Queue = "bulk" },
		"handler":           func(d *job.Definition) { d.Handler = "exec" },
		"no handler":        func(d *job.Definition) { d.Handler = "" },
		"timeout":           func(d *job.Definition) { d.Timeout += time.Millisecond },
		"attempts":          func(d *job.Definition) { d.Retry.MaxAttempts++ },
		"another label":     func(d *job.Definition) { d.Labels = map[string]string{"a": "b", "c": "e"} },
		"more labels":       func(d *job.Definition) { d.Labels = map[string]string{"a": "b", "c": "d", "e": ""} },
		"no labels":         func(d *job.Definition) { d.Labels = nil },
		"label's border":    func(d *job.Definition) { d.Labels = map[string]string{"a": "bc", "": "d"} },
		"handler for queue": func(d *job.Definition) { d.Queue, d.Handler = d.Handler, d.Queue },
		"queue's border":    func(d *job.Definition) { d.Queue, d.Handler = d.Queue+d.Handler, "" },
		"job's border":      func(d *job.Definition) { d.ID, d.Queue = d.ID+d.Queue, "" },
	} {
		bad := d
		change(&bad)
		opens(t, r, bad, ErrTampered, name)
		if bad.EqualBoundData(&d) || bytes.Equal(bad.AppendBound(nil), d.AppendBound(nil)) {
			t.Errorf("%s: counts as the same", name)
		}
	}
	free := d
	free.Priority, free.Target, free.Revision, free.Schedule.Every = 9, "db", 7, time.Hour
	free.Labels = maps.Clone(d.Labels)
	opens(t, r, free, nil, "priority, target and schedule")
	old.Queue = "bulk"
	opens(t, r, old, nil, "version 1 in another queue")
	old.Payload = bytes.Clone(old.Payload)
	old.Payload[0] = job.SealOfWork
	opens(t, r, old, ErrTampered, "version 1 as version 2")
	d.Payload[0] = job.SealOfJob
	opens(t, r, d, ErrTampered, "version 2 as version 1")
}

// TestVersionOneStaysReadable opens a payload that the build before version 2 has sealed.
func TestVersionOneStaysReadable(t *testing.T) {
	r, _ := ring(t, "k1 "+one)
	r.UseVersion2()
	d := definition()
	d.PayloadKey = "k1"
	var err error
	if d.Payload, err = base64.StdEncoding.DecodeString("AdffuUNdquFij5tRWdaN9mQOfQtjdQaiynLzALz+aVraxDI="); err != nil {
		t.Fatal(err)
	}
	opens(t, r, d, nil, "version 1 of the build before")
}

// TestStrictRing opens neither what is not sealed, nor version 1.
func TestStrictRing(t *testing.T) {
	r, path := ring(t, "k1 "+one)
	old := sealed(r, "secret")
	strict, err := Load(path, Options{RequireVersion2: true})
	if err != nil {
		t.Fatal(err)
	}
	if strict.Version() != job.SealOfWork || !strict.RequiresVersion2() || r.RequiresVersion2() {
		t.Error("a strict ring seals by version 1")
	}
	plain := definition()
	plain.Payload = []byte("secret")
	opens(t, r, plain, nil, "plain")
	opens(t, strict, plain, ErrUnsealed, "plain, strict")
	opens(t, r, old, nil, "version 1")
	opens(t, strict, old, ErrVersion1, "version 1, strict")
	empty := definition()
	if _, err := strict.Decrypt(&empty); !errors.Is(err, ErrUnsealed) {
		t.Errorf("an empty payload in the place of a sealed one: %v", err)
	}
	opens(t, strict, sealed(strict, "secret"), nil, "version 2, strict")
	opens(t, r, sealed(strict, "secret"), nil, "version 2")
	empty = sealed(strict, "")
	if plain, err := strict.Decrypt(&empty); err != nil || len(plain) > 0 || empty.PayloadSize() != 0 {
		t.Errorf("an empty payload that is sealed: %q, %v", plain, err)
	}
}

func TestRotation(t *testing.T) {
	r, path := ring(t, "k1 "+one)
	old := sealed(r, "secret")
	write(t, path, "# rotated\nk2 "+two+"\n\nk1 "+one+"\n")
	if changed := r.Reload(nil); !changed || r.LoadError() != nil || r.EncryptingKeyID() != "k2" {
		t.Fatalf("%v, %v, %s", changed, r.LoadError(), r.EncryptingKeyID())
	}
	opens(t, r, old, nil, "with the old key")
	for _, bad := range []string{"", "k2\n", "k2 " + two + "\nk2 " + one, "k2 c2hvcnQ=", "k/2 " + two,
		"k2 " + two + " more", "k2 " + base64.StdEncoding.EncodeToString(make([]byte, 32))} {
		write(t, path, bad)
		if changed, err := r.Reload(nil), r.LoadError(); changed || err == nil || strings.Contains(err.Error(), two) {
			t.Errorf("%q: %v, %v", bad, changed, err)
		}
		if r.EncryptingKeyID() != "k2" {
			t.Errorf("%q has taken the keys away", bad)
		}
	}
	write(t, path, "k2 "+two)
	if changed := r.Reload(nil); !changed || r.LoadError() != nil {
		t.Fatal(r.LoadError())
	}
	opens(t, r, old, ErrKey, "with a key that is gone")
}

func FuzzOpen(f *testing.F) {
	r, _ := ring(f, "k1 "+one)
	f.Add(sealed(r, "x").Payload)
	r.UseVersion2()
	f.Add(sealed(r, "x").Payload)
	f.Fuzz(func(t *testing.T, b []byte) {
		d := definition()
		d.Payload, d.PayloadKey = b, "k1"
		if plain, err := r.Decrypt(&d); err == nil && string(plain) != "x" {
			t.Errorf("%q opens as %q", b, plain)
		}
	})
}

func BenchmarkSeal(b *testing.B) {
	for version := job.SealOfJob; version <= job.SealOfWork; version++ {
		r, _ := ring(b, "k1 "+one)
		if version == job.SealOfWork {
			r.UseVersion2()
		}
		payload := string(make([]byte, 1024))
		b.Run(fmt.Sprint("seal version ", version), func(b *testing.B) {
			b.ReportAllocs()
			d := definition()
			for b.Loop() {
				r.Encrypt(&d, []byte(payload))
			}
		})
		d := sealed(r, payload)
		b.Run(fmt.Sprint("open version ", version), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.Decrypt(&d); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
