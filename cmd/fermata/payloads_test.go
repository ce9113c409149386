package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/api/rpc"
	"github.com/fermata-io/fermata/internal/api/workerstream"
	"github.com/fermata-io/fermata/internal/auth/authn"
	"github.com/fermata-io/fermata/internal/core/job"
)

// twoQueues has a job in queue mail and one in queue web, and seals nothing anew.
type twoQueues struct{ rpc.Jobs }

func (twoQueues) jobs() []job.Record {
	var list []job.Record
	for _, queue := range []string{"mail", "web"} {
		d := job.WithDefaults(job.Definition{Key: job.Key{Namespace: "team-a", ID: "of-" + queue}, Queue: queue, Handler: "h", Revision: 1, Generation: 1})
		list = append(list, job.Record{Definition: &d})
	}
	return list
}

func (q twoQueues) List(_ context.Context, f job.Filter, _ int, _ string) (page job.Page, _ error) {
	for _, r := range q.jobs() {
		if f.Queue == "" || f.Queue == r.Definition.Queue {
			page.Records = append(page.Records, r)
		}
	}
	return page, nil
}

func (q twoQueues) Get(_ context.Context, key job.Key) (job.Record, error) {
	for _, r := range q.jobs() {
		if r.Definition.Key == key {
			return r, nil
		}
	}
	return job.Record{}, &job.MissingError{Key: key}
}

func (q twoQueues) Update(ctx context.Context, u job.UpdateRequest) (job.Record, error) {
	r, err := q.Get(ctx, u.Key)
	if err == nil && u.Check != nil {
		err = u.Check(*r.Definition)
	}
	return r, err
}

// TestResealReportsSkippedJobs: who may edit some queues only has to name one, and hears of each job that
// is listed and cannot be edited. An export says that it is not whole.
func TestResealReportsSkippedJobs(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	text := "tokens:\n"
	for _, name := range []string{"some", "sees", "all", "none"} {
		token, _ := authn.NewToken()
		text += "  - {name: " + name + ", token-file: " + write(name, token) + "}\n"
	}
	text += `rules:
  - {subjects: ["token:some", "token:sees"], role: editor, namespaces: ["team-*"], queues: [mail, "mail-*"]}
  - {subjects: ["token:some"], role: editor, namespaces: [other]}
  - {subjects: ["token:sees"], role: viewer, namespaces: [team-a]}
  - {subjects: ["token:all"], role: editor, namespaces: [team-a]}
  - {subjects: ["token:all"], role: editor, namespaces: [team-a], queues: [mail]}
  - {subjects: ["token:none"], role: viewer, namespaces: [other]}
`
	source, err := authn.Open(t.Context(), authn.Options{Path: write("access.yaml", text), Now: func() time.Time { return epoch }})
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, address: identityNode(t, rpc.Options{Authority: source, LeaseSigningKey: bytes.Repeat([]byte("k"), workerstream.MinKeyBytes), Jobs: twoQueues{}})}
	c.clock.Store(epoch.UnixMilli())
	for _, x := range []struct {
		who, args string
		code      int
		out, errs string
	}{
		{"some", "payloads reseal", exitFailed, "", "payloads of other queues than mail, mail-* would stay as they are"},
		{"some", "payloads reseal --queue mail", exitOK, "sealed 0 payloads again, left 1 unchanged\n", ""},
		{"some", "payloads reseal --queue web", exitFailed, "", `is missing for queue "web"`},
		{"sees", "payloads reseal", exitFailed, "", "payloads of other queues than mail, mail-*"},
		{"sees", "payloads reseal --queue web", exitFailed, "", "of-web: your roles do not let you edit jobs of queue web"},
		{"all", "payloads reseal", exitOK, "sealed 0 payloads again, left 2 unchanged\n", ""},
		{"none", "payloads reseal", exitFailed, "", "the permission to read jobs"},
		{"some", "export", exitOK, "of-mail", "warning: only jobs of the queues mail, mail-* are written"},
		{"sees", "export", exitOK, "of-web", ""},
		{"all", "export", exitOK, "of-web", ""},
	} {
		args := append(strings.Fields(x.args), "--namespace", "team-a", "--token-file", filepath.Join(dir, x.who))
		code, out, errs := c.run(args...)
		if code != x.code || !strings.Contains(out, x.out) || x.out == "" && out != "" || !strings.Contains(errs, x.errs) || x.errs == "" && errs != "" {
			t.Errorf("%s: %s: exit code %d\n%s%s", x.who, x.args, code, out, errs)
		}
	}
}
