package rpc

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/fermata-io/fermata/internal/core/authz"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestWhatLooksLikeANamespace is another one, or none: whoever rules in one namespace
// gets nowhere by writing its name in another way, whatever the method.
func TestWhatLooksLikeANamespace(t *testing.T) {
	b := serveGated(t, Options{Authority: newAuthority(t, authz.Limits{}, allow(authz.Admin, "mine", "ann"))})
	conn := b.dial(t)
	names := []string{
		"", "MINE", "Mine", "mines", "min", "mine*", "min?", "m[i]ne", "*", "**", "-", ".", "..", "mine.", "mine-", "mine:", "mine,theirs", "mine|theirs",
		"mine/", "/mine", "./mine", "mine/.", "theirs/../mine", "mine/../theirs", "mine//", "mine%2ftheirs", "%6dine", "mine#x", "mine?x", "{mine}", "mine}{",
		" mine", "mine ", "mine\n", "mine\r\n", "mine\t", "mine\u00a0", "mine\x00", "mine\x00theirs", "mine\u200b", "mi\u00adne", "\ufeffmine", "mine\u202e",
		"m\u0456ne", "m\u0131ne", "ｍｉｎｅ", "mın\u0435", "mine\u0301", strings.Repeat("mine", 1000),
	}
	calls := 0
	for _, method := range servedMethods(t) {
		if clusterWide(method) || forEverybody(method) {
			continue
		}
		for _, name := range names {
			if strings.Contains(method, "ExternalScaler") && (name == "" || strings.TrimSpace(name) == "mine") {
				continue // where people write YAML by hand, no name is the default one, and space around it no part of it
			}
			if name == "-" && spansNamespaces(method) || strings.HasSuffix(method, "/ListNamespaces") {
				continue // what these list is in TestCallersOfOneNamespaceListNoOther
			}
			code := knock(t, conn, method, "ann", name)
			if code != codes.PermissionDenied && code != codes.InvalidArgument {
				t.Errorf("%s in %.40q: %s", method, name, code)
			}
			calls++
		}
	}
	if calls < 20*len(names) {
		t.Errorf("only %d calls", calls)
	}
}

// TestLogLinesStayWhole: nobody writes lines of their own into a node's log, by what
// they call things.
func TestLogLinesStayWhole(t *testing.T) {
	b := serveGated(t, Options{Authority: newAuthority(t, authz.Limits{}, allow(authz.Editor, "mine", "ann"))})
	jobs, ctx := fermatav1.NewJobServiceClient(b.dial(t)), as(t.Context(), "ann")
	const forged = "x\nmsg=forged\r\u2028msg=forged\x1b[2J\" msg=forged"
	if _, err := jobs.CreateJob(ctx, &fermatav1.CreateJobRequest{Parent: "namespaces/mine", JobId: forged, RequestId: forged, Job: newJobPB()}); err != nil {
		t.Error(err)
	}
	for _, call := range []func() error{
		func() error {
			_, err := jobs.ListJobs(ctx, &fermatav1.ListJobsRequest{Parent: "namespaces/" + forged})
			return err
		},
		func() error {
			_, err := jobs.ListJobs(as(t.Context(), "bad\x20token"), &fermatav1.ListJobsRequest{Parent: "namespaces/mine"})
			return err
		},
	} {
		if call() == nil {
			t.Error("was let in")
		}
	}
	lines := slices.Collect(strings.Lines(b.logs.String()))
	for _, line := range lines {
		if !strings.HasPrefix(line, "time=") || strings.ContainsAny(line[:len(line)-1], "\r\n\x1b\u2028") || strings.Contains(line, " msg=forged ") {
			t.Errorf("line %q", line)
		}
	}
	if len(lines) < 3 {
		t.Errorf("%d lines", len(lines))
	}
}
