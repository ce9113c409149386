package registry

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

// NewUnhurried is New for tests: no page is short and no change of many jobs ends early because the machine is busy. A
// test about that sets the times itself.
func NewUnhurried(o Options) (*Registry, error) {
	if o.ScanTime == 0 {
		o.ScanTime = time.Hour
	}
	if o.BulkTime == 0 {
		o.BulkTime = time.Hour
	}
	return New(o)
}

// TestRegistriesOfTestsAreUnhurried: a list that ended after 50 ms made a test fail now and then.
func TestRegistriesOfTestsAreUnhurried(t *testing.T) {
	hurried := regexp.MustCompile(`[^\w](registry\.)?New\((registry\.)?Options\{|registry\.New\(`)
	paths, err := filepath.Glob("*_test.go")
	if err != nil || len(paths) < 20 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if found := hurried.Find(text); found != nil && path != "unhurried_test.go" {
			t.Errorf("%s has %q: use NewUnhurried", path, found)
		}
	}
}
