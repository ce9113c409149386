package httpapi

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestOddRequests: paths, queries and bodies that try to mean something else than they say concern the resource that
// their path names, or none.
func TestOddRequests(t *testing.T) {
	s := startServer(t, Options{})
	const jobs, odd = ns + "/jobs", `"name":"namespaces/rest/jobs/odd:run"`
	nested := func(depth int) string {
		return `{"handler":"h","payloadJson":` + strings.Repeat("[", depth) + strings.Repeat("]", depth) + `}`
	}
	for _, row := range []struct {
		request
		want string // a part of the answer
	}{
		{request{"POST", jobs + "?jobId=odd:run", `{"handler":"h"}`, 0}, odd},
		{request{"GET", jobs + "/odd:run", "", 0}, odd},
		{request{"GET", jobs + "/odd%3Arun", "", 0}, odd},
		{request{"POST", jobs + "/odd:run:pause", `{}`, 0}, odd},
		{request{"POST", jobs + "/odd:run", `{}`, 404}, "namespaces/rest/jobs/odd\""},
		{request{"POST", jobs + "/odd%3Arun", `{}`, 405}, ""},
		{request{"PATCH", jobs + "/odd:run", `{"name":"namespaces/other/jobs/x","queue":"q"}`, 0}, odd},
		{request{"PATCH", jobs + "/odd:run?job.name=namespaces/other/jobs/x", `{"queue":"q"}`, 0}, odd},
		{request{"GET", jobs + "/odd:run?name=namespaces/other/jobs/x", "", 0}, odd},
		{request{"POST", jobs + "?jobId=own&parent=namespaces/other", `{"handler":"h"}`, 0}, "namespaces/rest/jobs/own"},
		{request{"POST", jobs + ":pause", `{"parent":"namespaces/other","idPrefix":"odd"}`, 0}, `{`}, // a page may end early
		{request{"GET", jobs + "/odd%2Frun", "", 404}, "no such path"},
		{request{"DELETE", jobs + "/odd:run%2Fruns%2F1", "", 405}, "METHOD_NOT_ALLOWED"},
		{request{"GET", jobs + "/%2E%2E", "", 400}, `"field":"name"`},
		{request{"GET", jobs + "/..%2F..%2Fother%2Fjobs%2Fx", "", 404}, "no such path"},
		{request{"GET", jobs + "/%00", "", 400}, `"field":"name"`},
		{request{"GET", jobs + "/%FF", "", 400}, "UTF-8"},
		{request{"GET", jobs + "/%C3%A9", "", 400}, `"field":"name"`},
		{request{"GET", jobs + "//odd:run", "", 404}, ""},
		{request{"GET", jobs + "/odd:run/runs/%1B%5B2J", "", 400}, `"field":"name"`},
		{request{"GET", jobs + "?filter=id:a&filter=id:b", "", 400}, ""},
		{request{"GET", jobs + "?pageSize=99999999999", "", 400}, ""},
		{request{"GET", jobs + "?pageSize=1e1", "", 400}, ""},
		{request{"GET", jobs + "?page_size=1&pageSize=2", "", 400}, ""},
		{request{"POST", jobs + "?jobId=deep", nested(90), 0}, "namespaces/rest/jobs/deep"},
		{request{"POST", jobs + "?jobId=deeper", nested(101), 400}, "BODY_TOO_DEEP"},
		{request{"POST", jobs + "?jobId=twice", `{"handler":"h","handler":"g"}`, 400}, ""},
		{request{"POST", jobs + "?jobId=twice", `{"handler":"h"}{"handler":"g"}`, 400}, ""},
		{request{"DELETE", jobs + "/odd%3Arun", "", 0}, ""},
	} {
		text := string(sendRequest(t, s, row.verb, row.request, nil))
		if strings.Contains(text, "\x1b") || !strings.Contains(text, row.want) {
			t.Errorf("%s %s: %s", row.verb, row.path, text)
		}
	}
	// What was stored is what was sent.
	var deep struct{ Payload []byte }
	err := json.Unmarshal(sendRequest(t, s, "GetJob", request{"GET", jobs + "/deep", "", 0}, nil), &deep)
	want := strings.Repeat("[", 90) + strings.Repeat("]", 90)
	if err != nil || string(deep.Payload) != want {
		t.Errorf("the payload has %d bytes, want %d: %v", len(deep.Payload), len(want), err)
	}
}
