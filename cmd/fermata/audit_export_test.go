package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

const trailStream = "fermata:{meta}:audit"

// changes makes n records.
func (c *cluster) changes(n int) {
	c.t.Helper()
	before := c.admin.XLen(c.t.Context(), trailStream).Val()
	for i := range n {
		c.must("jobs", "create", fmt.Sprintf("j%d-%d", before, i), "--handler", "h")
		c.recorded(before + int64(i) + 1) // each has a signature of its own then
	}
}

// recorded waits until the cluster keeps n records.
func (c *cluster) recorded(n int64) {
	c.t.Helper()
	redistest.Eventually(c.t, redistest.Patience, "the records", func(ctx context.Context) error {
		if got := c.admin.XLen(ctx, trailStream).Val(); got != n {
			return fmt.Errorf("%d, want %d", got, n)
		}
		return nil
	})
}

// TestAuditVerify: the chain of a cluster holds, and each way of changing it in Redis or in a file is found.
func TestAuditVerify(t *testing.T) {
	c := startCluster(t)
	dir := t.TempDir()
	public, file := filepath.Join(dir, "audit.pub"), filepath.Join(dir, "audit.jsonl")
	if err := os.WriteFile(public, []byte(auditKey.PublicLine()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	verify := func(code int, want string, args ...string) {
		t.Helper()
		got, out, errs := c.run(append([]string{"audit", "verify", "--public-key-file", public}, args...)...)
		if got != code || !strings.Contains(out+errs, want) {
			t.Errorf("%v: exit code %d, want %d and %q\n%s%s", args, got, code, want, out, errs)
		}
	}
	verify(1, "there is no record")
	c.changes(6)
	verify(0, "6 records: sequences 1 to 6")
	verify(0, "signatures cover all of it")
	if got := c.must("audit", "verify"); !strings.Contains(got, "signatures were not checked") {
		t.Errorf("without keys: %s", got)
	}
	c.must("audit", "export", "--file", file)
	verify(0, "signatures cover all of it", "--file", file)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(text), "\n")
	for _, c := range map[string]struct{ text, want string }{
		"a name":        {strings.Replace(string(text), "anonymous", "somebody", 1), "was changed"},
		"a time":        {strings.Replace(string(text), `"id":"`, `"id":"1`, 1), "was changed"},
		"a line less":   {strings.Join(append(append([]string{}, lines[:2]...), lines[3:]...), ""), "1 records are missing before it (sequences 3 to 3)"},
		"a line twice":  {lines[0] + string(text), "has sequence 1 after 1"},
		"cut off":       {string(text)[:len(text)-20], "line 6 is no audit record"},
		"not signed":    {strings.ReplaceAll(string(text), `"signature"`, `"unknown"`), "is no audit record"},
		"no last lines": {strings.Join(lines[:4], ""), ""}, // each has a signature here: only a later copy shows it
	} {
		path := filepath.Join(dir, "changed")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		code := 1
		if c.want == "" {
			code = 0
		}
		verify(code, c.want, "--file", path)
	}
	entries := c.admin.XRange(t.Context(), trailStream, "-", "+").Val()
	c.admin.XAdd(t.Context(), &redis.XAddArgs{Stream: trailStream, Values: []string{"method", "forged"}})
	verify(1, "is not part of the chain")
	c.admin.XTrimMinID(t.Context(), trailStream, entries[1].ID) // as by age
	verify(1, "is not part of the chain")
	c.admin.XDel(t.Context(), trailStream, entries[3].ID)
	verify(1, "1 records are missing before it (sequences 4 to 4)")
	c.admin.Del(t.Context(), trailStream)
	verify(1, "the chain goes on to sequence 6")
	c.changes(1)
	verify(0, "sequences 7 to 7")
	for _, args := range [][]string{{"--file", "/none"}, {"--public-key-file", "/none"}, {"--public-key-file", file}, {"more"}} {
		if code, _, _ := c.run(append([]string{"audit", "verify"}, args...)...); code != 2 {
			t.Errorf("%v: exit code %d", args, code)
		}
	}
}

// ingest is an endpoint that takes records.
type ingest struct {
	mu     sync.Mutex
	fail   int // so many of the next calls
	bodies []string
	heads  []string
}

func (i *ingest) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.fail > 0 {
		i.fail--
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	i.bodies, i.heads = append(i.bodies, string(body)), append(i.heads, r.Header.Get("Authorization"))
}

func (i *ingest) all() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return strings.Join(i.bodies, "")
}

// TestAuditExportAcknowledges what was delivered and nothing else, goes on from there, and says what is missing.
func TestAuditExportAcknowledges(t *testing.T) {
	c := startCluster(t)
	c.changes(3)
	endpoint := &ingest{fail: 1}
	server := httptest.NewServer(endpoint)
	defer server.Close()
	header := filepath.Join(t.TempDir(), "header")
	if err := os.WriteFile(header, []byte("Authorization: Bearer secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	export := []string{"audit", "export", "--name", "siem", "--post", server.URL, "--post-header-file", header}
	if code, _, errs := c.run(export...); code != 5 || !strings.Contains(errs, "503") || strings.Contains(errs, "secret") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	c.recorded(4) // the export was made
	if got := c.must("audit", "exports"); !strings.Contains(got, "siem   0") || endpoint.all() != "" {
		t.Errorf("nothing was delivered:\n%s", got)
	}
	c.must(export...)
	if got := endpoint.all(); strings.Count(got, "CreateJob") != 3 || endpoint.heads[0] != "Bearer secret" {
		t.Errorf("delivered:\n%s", got)
	}
	if got := c.must("audit", "exports", "-o", "json"); !strings.Contains(got, `"record_id": "`) {
		t.Errorf("acknowledged:\n%s", got)
	}
	c.must(export...)
	if got := endpoint.all(); strings.Count(got, "CreateJob") != 3 {
		t.Errorf("delivered twice:\n%s", got)
	}
	c.must(export...)
	c.recorded(4)                                                 // that an export goes on leaves no record
	acknowledged := strings.Fields(c.must("audit", "exports"))[6] // of the second line
	// What was removed meanwhile is said; the rest comes.
	c.changes(3)
	entries := c.admin.XRange(t.Context(), trailStream, "-", "+").Val()
	c.admin.XTrimMinID(t.Context(), trailStream, entries[5].ID) // of sequence 6, the second of the last three
	if code, _, errs := c.run(export...); code != 1 || !strings.Contains(errs, "GAP: records with sequences 5 to 5 are missing") {
		t.Errorf("after %s: exit code %d: %s", acknowledged, code, errs)
	}
	if got := endpoint.all(); strings.Count(got, "CreateJob") != 5 {
		t.Errorf("after the gap:\n%s", got)
	}
	c.must("audit", "exports", "delete", "siem")
	if got := c.must("audit", "exports"); got != "no exports\n" {
		t.Errorf("deleted: %s", got)
	}
	for _, args := range [][]string{
		{"--name", "No"}, {"--file", "a", "--post", "https://x"}, {"--post", "http://example.org"}, {"--post", "https://a:b@example.org"},
		{"--post-header-file", header}, {"--post", server.URL, "--post-header-file", "/none"}, {"--file", "/none/none"}, {"more"},
	} {
		if code, _, errs := c.run(append([]string{"audit", "export"}, args...)...); code != 2 {
			t.Errorf("%v: exit code %d: %s", args, code, errs)
		}
	}
}

// TestAuditExportNoticesSkips: whoever moves the position of an export skips nothing unseen. What the file does not have
// comes, or is a gap.
func TestAuditExportNoticesSkips(t *testing.T) {
	c := startCluster(t)
	api, err := client.Dial([]string{c.address}, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	newest := func() *client.AuditRecord {
		t.Helper()
		records, _, err := api.Admin().ReadAuditRecords(t.Context(), "")
		if err != nil || len(records) == 0 {
			t.Fatal(records, err)
		}
		return records[len(records)-1]
	}
	move := func() { // as an identity that may, without the exporter
		t.Helper()
		if _, err := api.Admin().AcknowledgeAuditRecords(t.Context(), "siem", newest()); err != nil {
			t.Fatal(err)
		}
	}
	c.changes(3)
	if _, err := api.Admin().AcknowledgeAuditRecords(t.Context(), "siem", newest()); !client.IsNotFound(err) {
		t.Errorf("an acknowledgement created an export: %v", err)
	}
	file := filepath.Join(t.TempDir(), "audit.jsonl")
	export := func(code int, want string, sequences int) {
		t.Helper()
		got, _, errs := c.run("audit", "export", "--name", "siem", "--file", file)
		text, err := os.ReadFile(file)
		if err != nil || got != code || !strings.Contains(errs, want) || strings.Count(string(text), "\n") != sequences {
			t.Errorf("exit code %d, want %d and %q: %s\n%s (%v)", got, code, want, errs, text, err)
		}
	}
	if _, err := api.Admin().AcknowledgeAuditRecords(t.Context(), "siem", nil); err != nil {
		t.Fatal(err)
	}
	c.recorded(4) // the export was created
	export(0, "", 4)
	c.changes(2)
	move()
	export(0, "ends with sequence 4, but up to 6 was acknowledged", 6)
	// It was killed while it wrote, or after it and before the acknowledgement.
	c.changes(1)
	torn, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := torn.WriteString(`{"id":"17`); err != nil {
		t.Fatal(err)
	}
	_ = torn.Close()
	export(0, "", 7)
	c.admin.HSet(t.Context(), trailStream+":exports", "siem", "6 1 "+c.admin.XRange(t.Context(), trailStream, "-", "+").Val()[5].ID)
	export(0, "", 8)
	// What was skipped and removed since is a gap, also before there are later records.
	c.changes(2)
	move()
	c.admin.XTrimMinID(t.Context(), trailStream, newest().GetId())
	export(1, "GAP: records with sequences 8 to 8 are missing", 9)
	c.changes(2)
	move()
	c.admin.XTrimMaxLen(t.Context(), trailStream, 0)
	export(1, "GAP: records with sequences 10 to 11 are missing", 9)
	// A new export with the same file continues after it.
	c.must("audit", "exports", "delete", "siem")
	c.recorded(1)
	if _, err := api.Admin().AcknowledgeAuditRecords(t.Context(), "siem", nil); err != nil {
		t.Fatal(err)
	}
	c.recorded(2)
	c.changes(2)
	c.admin.XTrimMaxLen(t.Context(), trailStream, 1)
	export(1, "GAP: records with sequences 10 to 14 are missing", 10)
	// Without a name too, a line without an end is removed.
	if err := os.WriteFile(file, []byte(`{"id":"17`), 0o600); err != nil {
		t.Fatal(err)
	}
	c.must("audit", "export", "--file", file)
	text, err := os.ReadFile(file)
	if err != nil || strings.HasPrefix(string(text), `{"id":"17{`) || !strings.HasSuffix(string(text), "}\n") {
		t.Errorf("%s, %v", text, err)
	}
	if err := os.WriteFile(file, []byte("something else"), 0o600); err != nil {
		t.Fatal(err)
	}
	export(2, "is no audit record", 0)
}

// TestAuditExportNoticesThatRedisWasSetBack: with its position, so that only the file shows it.
func TestAuditExportNoticesThatRedisWasSetBack(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	file := filepath.Join(t.TempDir(), "audit.jsonl")
	export := func(code int, want string) {
		t.Helper()
		got, _, errs := c.run("audit", "export", "--name", "siem", "--file", file)
		if got != code || !strings.Contains(errs, want) || want == "" && errs != "" {
			t.Errorf("exit code %d, want %d and %q: %s", got, code, want, errs)
		}
	}
	keys := []string{trailStream, trailStream + ":head", trailStream + ":exports"}
	saved := map[string]string{}
	save := func() {
		t.Helper()
		for _, key := range keys {
			saved[key] = c.admin.Dump(t.Context(), key).Val()
		}
	}
	restore := func() {
		t.Helper()
		for _, key := range keys {
			err := c.admin.RestoreReplace(t.Context(), key, 0, saved[key]).Err()
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	c.changes(3)
	export(0, "")
	c.recorded(4)
	export(0, "")
	save()
	c.changes(3)
	export(0, "")
	all := c.admin.XRange(t.Context(), trailStream, "-", "+").Val()
	if len(all) != 7 {
		t.Fatal(all)
	}
	restore()
	export(1, "ends with sequence 7, and Redis with 4: Redis has lost records")
	// Another node, which has not seen them, goes on where the chain ends.
	head := strings.Fields(c.admin.HGet(t.Context(), keys[1], "head").Val())
	for i, record := range all[4:6] {
		values := record.Values
		values["resource"] = "namespaces/default/jobs/other"
		err := c.admin.XAdd(t.Context(), &redis.XAddArgs{Stream: trailStream, Values: values}).Err()
		if err != nil {
			t.Fatal(err)
		}
		c.admin.HSet(t.Context(), keys[1], "head", fmt.Sprint(5+i, " ", head[1], " ", head[2]))
	}
	export(1, "GAP: sequence 7 is followed by 5: Redis has lost records")
	// It was killed before it acknowledged, and the last record that it has delivered is another one by now.
	save()
	c.admin.HSet(t.Context(), keys[2], "siem", "4 1 "+all[3].ID)
	export(0, "")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(text), "\n")
	last := &client.AuditRecord{}
	if err := protojson.Unmarshal([]byte(lines[len(lines)-2]), last); err != nil {
		t.Fatal(err)
	}
	last.Hash[0]++
	forged, err := protojson.Marshal(last)
	if err != nil {
		t.Fatal(err)
	}
	lines[len(lines)-2] = strings.Replace(string(forged), "{", `{"fieldOfALaterVersion": 1, `, 1) + "\n"
	if err := os.WriteFile(file, []byte(strings.Join(lines, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	c.admin.HSet(t.Context(), keys[2], "siem", "4 1 "+all[3].ID)
	export(1, "than Redis has")
}

// TestAuditExportFollows through failures of the endpoint, until it is interrupted.
func TestAuditExportFollows(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	c.changes(1)
	endpoint := &ingest{fail: 2}
	server := httptest.NewServer(endpoint)
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	var errs bytes.Buffer
	go func() {
		ended <- runCommand(ctx, []string{"--address", c.address, "audit", "export", "--follow", "--name", "siem", "--post", server.URL},
			standardStreams{strings.NewReader(""), io.Discard, &errs}, time.Now)
	}()
	delivered := func(n int) {
		t.Helper()
		redistest.Eventually(t, redistest.Patience, "the records", func(context.Context) error {
			if got := strings.Count(endpoint.all(), "\n"); got != n {
				return errors.New(endpoint.all())
			}
			return nil
		})
	}
	delivered(2) // and that the export was made
	c.must("jobs", "create", "later", "--handler", "h")
	delivered(3)
	cancel()
	if code := <-ended; code != 0 || strings.Count(errs.String(), "will try again") != 2 {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
	if got := c.must("audit", "exports"); !strings.Contains(got, "siem   3") {
		t.Errorf("acknowledged:\n%s", got)
	}
}
