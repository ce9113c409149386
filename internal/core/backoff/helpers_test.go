package backoff_test

import (
	"slices"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
)

func preset(t *testing.T, name string) backoff.Preset {
	t.Helper()
	p, ok := backoff.PresetByName(name)
	if !ok {
		t.Fatalf("no preset %q", name)
	}
	return p
}

func seconds(s ...int) (ds []time.Duration) {
	for _, x := range s {
		ds = append(ds, time.Duration(x)*time.Second)
	}
	return ds
}

func equalDurations(t *testing.T, got, want []time.Duration) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
