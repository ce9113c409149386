package gateway

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	gatewayruntime "github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/protobuf/encoding/protojson"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestMasksOfPatches: they name the fields of the body, as those of grpc-gateway do, but for what is in a payload.
func TestMasksOfPatches(t *testing.T) {
	for _, body := range []string{
		"", " ", "{}", `{"queue":"q"}`, `{"queue":"","priority":0,"labels":{},"handler":null}`, `{"labels":{"a":"b","c":"d"}}`,
		`{"maxLag":"5s","create_time":"2026-01-02T03:04:05Z","overlapPolicy":"OVERLAP_POLICY_SKIP"}`,
		`{"schedule":{}}`, `{"schedule": {"interval": { }}}`, `{"schedule":null,"locks":[{"key":"a"}],"etag":"x"}`,
		`{"schedule":{"interval":{"every":"60s"}},"retryPolicy":{"maxAttempts":3}}`, `{"retry_policy":{"max_attempts":0}}`,
		`{"status":{"state":"STATE_DONE"},"payloadJson":7,"misfirePolicy":{"policy":"POLICY_SKIP"}}`, `{"payload_json":null}`,
	} {
		var j fermatav1.Job
		if strings.TrimSpace(body) != "" {
			if err := protojson.Unmarshal([]byte(body), &j); err != nil {
				t.Fatal(body, err)
			}
		}
		want, err := gatewayruntime.FieldMaskFromRequestBody(strings.NewReader(body), &j)
		if err != nil {
			t.Fatal(body, err)
		}
		u := &fermatav1.UpdateJobRequest{}
		err = completeMask(u, []byte(body))
		if got := slices.Sorted(slices.Values(u.GetUpdateMask().GetPaths())); err != nil || !slices.Equal(got, want.GetPaths()) {
			t.Errorf("%s: %q, want %q (%v)", body, got, want.GetPaths(), err)
		}
	}
	for _, body := range []string{`{"other":1}`, `{"schedule":{"other":1}}`, `[]`, `{`} {
		u := &fermatav1.UpdateJobRequest{}
		if err := completeMask(u, []byte(body)); err == nil {
			t.Errorf("%s: %v", body, u.GetUpdateMask())
		}
	}
}

// TestPatchesTakeTheMemoryOfTheirBody: the paths of a mask do not repeat long keys of a payload.
func TestPatchesTakeTheMemoryOfTheirBody(t *testing.T) {
	n := newFakeNode(t)
	_, url := newTestGateway(t, n, Options{})
	var body strings.Builder
	fmt.Fprintf(&body, `{"payloadJson":{"%s":{"0":1`, strings.Repeat("k", 1<<20))
	for i := range 1000 {
		fmt.Fprintf(&body, `,"x%d":1`, i)
	}
	body.WriteString("}}}")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	send(t, "PATCH", url+jobPath, "anna", body.String()).want(t, 200, "")
	runtime.ReadMemStats(&after)
	if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 100 {
		t.Errorf("a body of %d bytes took %d MiB", body.Len(), took)
	}
	u, _ := n.request.(*fermatav1.UpdateJobRequest)
	if got := u.GetUpdateMask().GetPaths(); !slices.Equal(got, []string{"payload"}) {
		t.Errorf("mask %.100q", got)
	}
}

// TestEntityTags: an empty tag is a condition that nothing meets.
func TestEntityTags(t *testing.T) {
	for header, want := range map[string]string{
		"": "", "*": "", `"e-1"`: "e-1", `W/"e-1"`: "e-1", "e-1": "e-1", `""`: `""`, `W/""`: `""`, ` "" `: `""`,
	} {
		if got := entityTag(header); got != want {
			t.Errorf("If-Match: %s: %q, want %q", header, got, want)
		}
	}
}
