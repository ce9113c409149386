package registry

import (
	"fmt"
	"slices"
	"testing"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/jobfilter"
)

// parseFilter is what the API makes of a filter.
func parseFilter(t *testing.T, text string) job.Condition {
	t.Helper()
	f, err := jobfilter.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestListByFilter lists the jobs that a filter in the language selects, on pages whose tokens are bound to it.
func TestListByFilter(t *testing.T) {
	f, r := newFake(t)
	for i := range 10 {
		d := definition(fmt.Sprintf("job-%d", i))
		d.Handler = []string{"http", "exec"}[i%2]
		if _, err := r.Create(t.Context(), d, ""); err != nil {
			t.Fatal(err)
		}
		stored := f.records[d.Key]
		stored.State.Failures = uint32(i)
		f.records[d.Key] = stored
	}
	filter := job.Filter{Namespace: "default", Condition: parseFilter(t, "handler = exec AND consecutive_failures > 2")}
	var seen []string
	for token := ""; ; {
		page, err := r.List(t.Context(), filter, 2, token)
		if err != nil {
			t.Fatal(err)
		}
		for _, record := range page.Records {
			seen = append(seen, record.Definition.ID)
		}
		token = page.Next
		if token == "" {
			break
		}
		other := filter
		other.Condition = parseFilter(t, "handler = exec")
		if _, err := r.List(t.Context(), other, 2, token); violated(err) != "page_token" {
			t.Errorf("the token of another filter: %v", err)
		}
		if page.Incomplete != (len(page.Records) < 2) {
			t.Errorf("%d jobs, incomplete %v", len(page.Records), page.Incomplete)
		}
	}
	slices.Sort(seen)
	if want := "[job-3 job-5 job-7 job-9]"; fmt.Sprint(seen) != want {
		t.Errorf("%v, want %s", seen, want)
	}
}
