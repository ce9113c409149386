package node_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/fermata-io/fermata/internal/node"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestErrorsFitIntoTrailers: a client that takes 8 KiB of trailers, as those built on gRPC core do, receives the error
// of a request with many or long faults, and what is wrong with the request.
func TestErrorsFitIntoTrailers(t *testing.T) {
	n := start(t, redistest.Start(t).URL(), "n")
	conn, err := grpc.NewClient(n.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithMaxHeaderListSize(8<<10))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c := fermatav1.NewJobServiceClient(conn)
	create(t, c, "there", intervalJob(time.Hour, "h"))
	createBad := func(change func(*fermatav1.Job)) func(context.Context) error {
		return func(ctx context.Context) error {
			j := intervalJob(time.Hour, "h")
			change(j)
			_, err := c.CreateJob(ctx, &fermatav1.CreateJobRequest{Parent: "namespaces/default", JobId: "bad", Job: j})
			return err
		}
	}
	repeat := func(n int, text string) (list []string) {
		for i := range n {
			list = append(list, fmt.Sprint(text, i))
		}
		return list
	}
	const there = "namespaces/default/jobs/there"
	for name, call := range map[string]func(context.Context) error{
		"dates": createBad(func(j *fermatav1.Job) {
			j.Schedule.Exclusions = &fermatav1.Exclusions{Dates: repeat(400, "24.12.20")}
		}),
		"texts of other scripts": createBad(func(j *fermatav1.Job) {
			j.Schedule = &fermatav1.Schedule{Rule: &fermatav1.Schedule_Cron{
				Cron: &fermatav1.CronSchedule{Expressions: repeat(16, strings.Repeat("день", 30))},
			}}
		}),
		"labels": createBad(func(j *fermatav1.Job) {
			j.Labels = map[string]string{}
			for _, key := range repeat(32, strings.Repeat("é", 40)) {
				j.Labels[key] = strings.Repeat("v", 200)
			}
		}),
		"paths of a mask": func(ctx context.Context) error {
			_, err := c.UpdateJob(ctx, &fermatav1.UpdateJobRequest{
				Job: &fermatav1.Job{Name: there}, UpdateMask: &fieldmaskpb.FieldMask{Paths: repeat(256, "colour")},
			})
			return err
		},
		"a filter": func(ctx context.Context) error {
			_, err := c.ListJobs(ctx, &fermatav1.ListJobsRequest{
				Parent: "namespaces/default", Filter: "queue ~ " + strings.Repeat("й", 1000),
			})
			return err
		},
		"the id of a run": func(ctx context.Context) error {
			_, err := c.GetRun(ctx, &fermatav1.GetRunRequest{Name: there + "/runs/" + strings.Repeat("é\x1b[2J", 9000)})
			return err
		},
		"the id of a run to cancel": func(ctx context.Context) error {
			_, err := c.CancelRun(ctx, &fermatav1.CancelRunRequest{Name: there + "/runs/m-" + strings.Repeat("x", 20_000)})
			return err
		},
		"the id of a job": func(ctx context.Context) error {
			_, err := c.GetJob(ctx, &fermatav1.GetJobRequest{Name: "namespaces/default/jobs/" + strings.Repeat("é", 20_000)})
			return err
		},
	} {
		err := call(t.Context())
		s := status.Convert(err)
		violations := 0
		for _, d := range s.Details() {
			if bad, ok := d.(*errdetails.BadRequest); ok {
				violations += len(bad.GetFieldViolations())
			}
		}
		if s.Code() != codes.InvalidArgument || violations == 0 || strings.ContainsRune(s.Message(), '\x1b') {
			t.Errorf("%s: %d violations with %.200q", name, violations, err)
		}
	}
}

// listCall lists a page of a namespace.
type listCall func(ctx context.Context, parent, token string) (page interface {
	proto.Message
	GetNextPageToken() string
}, err error)

// listCalls are methods that take a page_token.
func listCalls(conn *grpc.ClientConn) map[string]listCall {
	type page = interface {
		proto.Message
		GetNextPageToken() string
	}
	c := fermatav1.NewJobServiceClient(conn)
	list := func(change func(*fermatav1.ListJobsRequest)) listCall {
		return func(ctx context.Context, parent, token string) (page, error) {
			q := &fermatav1.ListJobsRequest{Parent: parent, PageSize: 2, PageToken: token}
			change(q)
			return c.ListJobs(ctx, q)
		}
	}
	return map[string]listCall{
		"jobs":            list(func(*fermatav1.ListJobsRequest) {}),
		"jobs by id":      list(func(q *fermatav1.ListJobsRequest) { q.OrderBy = "id" }),
		"jobs by time":    list(func(q *fermatav1.ListJobsRequest) { q.OrderBy = "next_due_time" }),
		"jobs by run":     list(func(q *fermatav1.ListJobsRequest) { q.OrderBy = "last_run_time desc" }),
		"jobs of a queue": list(func(q *fermatav1.ListJobsRequest) { q.Queue = "default" }),
		"filtered jobs":   list(func(q *fermatav1.ListJobsRequest) { q.Filter = "handler = h" }),
		"upcoming": func(ctx context.Context, parent, token string) (page, error) {
			return c.ListUpcomingJobs(ctx, &fermatav1.ListUpcomingJobsRequest{
				Parent: parent, PageSize: 2, PageToken: token,
			})
		},
		"targets": func(ctx context.Context, parent, token string) (page, error) {
			return c.ListTargets(ctx, &fermatav1.ListTargetsRequest{Parent: parent, PageSize: 2, PageToken: token})
		},
		"locks": func(ctx context.Context, parent, token string) (page, error) {
			return c.ListLocks(ctx, &fermatav1.ListLocksRequest{Parent: parent, PageSize: 2, PageToken: token})
		},
		"cancelled runs": func(ctx context.Context, parent, token string) (page, error) {
			return c.ListRuns(ctx, &fermatav1.ListRunsRequest{
				Parent: parent + "/jobs/-", Outcomes: []fermatav1.Outcome{fermatav1.Outcome_OUTCOME_CANCELLED},
				PageSize: 2, PageToken: token,
			})
		},
		"export": func(ctx context.Context, parent, token string) (page, error) {
			return fermatav1.NewBackupServiceClient(conn).ExportJobs(ctx, &fermatav1.ExportJobsRequest{
				Parent: parent, PageSize: 2, PageToken: token,
			})
		},
		"counted deletion": func(ctx context.Context, parent, token string) (page, error) {
			return c.BulkDeleteJobs(ctx, &fermatav1.BulkDeleteJobsRequest{
				Parent: parent, Filter: "id:*", DryRun: true, PageToken: token,
			})
		},
		"redriven runs": func(ctx context.Context, parent, token string) (page, error) {
			return c.RedriveDeadLetters(ctx, &fermatav1.RedriveDeadLettersRequest{
				Parent: parent, DryRun: true, PageToken: token,
			})
		},
		"dead letters": func(ctx context.Context, parent, token string) (page, error) {
			return c.ListDeadLetters(ctx, &fermatav1.ListDeadLettersRequest{Parent: parent, PageSize: 2, PageToken: token})
		},
	}
}

// TestForgedPageTokens: tokens of other lists, of other namespaces, and with any values in their fields, are refused or
// have a page of the list's own namespace. Nothing else is answered, and nothing breaks.
func TestForgedPageTokens(t *testing.T) {
	t.Parallel()
	x := newTenants(t, "")
	c := fermatav1.NewJobServiceClient(x.conn)
	for _, namespace := range []string{"a", "b"} {
		for i := range 12 {
			j := intervalJob(time.Hour, "h")
			j.Target, j.Locks = fmt.Sprint("target-", i), []*fermatav1.Lock{{Key: fmt.Sprint("lock-", i)}}
			q := &fermatav1.CreateJobRequest{Parent: "namespaces/" + namespace, JobId: fmt.Sprintf("job-%02d", i), Job: j}
			_, err := c.CreateJob(x.as("root"), q)
			if err != nil {
				t.Fatal(err)
			}
			name := q.Parent + "/jobs/" + q.JobId
			_, err = c.RunJob(x.as("root"), &fermatav1.RunJobRequest{Name: name, RequestId: "r"})
			if err != nil {
				t.Fatal(err)
			}
			_, err = c.CancelRun(x.as("root"), &fermatav1.CancelRunRequest{Name: name + "/runs/m-r"})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	calls := listCalls(x.conn)
	tokens := map[string]map[string]string{"a": {}, "b": {}} // by namespace and list
	for namespace, byList := range tokens {
		for name, call := range calls {
			page, err := call(x.as("admin-"+namespace), "namespaces/"+namespace, "")
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if page.GetNextPageToken() != "" {
				byList[name] = page.GetNextPageToken()
			}
		}
	}
	if len(tokens["a"]) < 9 {
		t.Fatalf("few lists have a second page: %v", slices.Sorted(maps.Keys(tokens["a"])))
	}
	pages := 0
	try := func(list, what, token string, mustRefuse bool) {
		page, err := calls[list](x.as("admin-a"), "namespaces/a", token)
		switch {
		case err == nil && mustRefuse:
			t.Errorf("%s takes %s", list, what)
		case err == nil:
			pages++
			if text := prototext.Format(page); strings.Contains(text, "namespaces/b") {
				t.Errorf("%s shows with %s:\n%s", list, what, text)
			}
		case status.Code(err) != codes.InvalidArgument:
			t.Errorf("%s with %s: %v", list, what, err)
		}
	}
	for list := range calls {
		for namespace, byList := range tokens {
			for other, token := range byList {
				if other != list || namespace != "a" {
					try(list, fmt.Sprintf("the token of %s in %s", other, namespace), token, true)
				}
			}
		}
		own := tokens["a"][list]
		for what, forged := range forgeTokens(own) {
			try(list, what, forged, false)
		}
	}
	if pages < 50 {
		t.Errorf("%d forged tokens had a page: the test had no power", pages)
	}
}

// forgeTokens makes tokens of one, each with another value in one of its fields, or broken.
func forgeTokens(token string) map[string]string {
	forged := map[string]string{
		"half a token": token[:len(token)/2], "a token twice": token + token, "padding": token + "==", "no text": "\x00",
		"an empty object": encodeJSON(map[string]any{}), "null": encodeJSON(nil), "a list": encodeJSON([]int{1}),
		"a deep list": base64.RawURLEncoding.EncodeToString([]byte(strings.Repeat("[", 100_000))),
	}
	signed, signature, isSigned := strings.Cut(token, ".")
	text, err := base64.RawURLEncoding.DecodeString(signed)
	fields := map[string]any{}
	if err != nil || json.Unmarshal(text, &fields) != nil {
		return forged
	}
	add := func(what string, fields map[string]any) {
		forged[what] = encodeJSON(fields)
		if isSigned {
			forged[what+", signed"] = forged[what] + "." + signature
		}
	}
	for field := range fields {
		for _, value := range []any{
			-1, 0, 1, math.MaxInt32 + 1, math.MaxInt64, math.MinInt64, uint64(math.MaxUint64), 1.5, true, nil,
			"", "b/job-01", "a/job-01", "a/job-01#d0", "\x00\xff", "v999999.x", "v-1.", "0", "99999999999999999999",
			"(", "+inf", strings.Repeat("x", 100_000), []int{1}, map[string]any{"x": 1},
		} {
			changed := maps.Clone(fields)
			changed[field] = value
			add(fmt.Sprintf("%.40v in %s", value, field), changed)
		}
	}
	for _, cursor := range []string{
		"0", "1.0", "v0.", "v15.a/job-05", "v0.b/job-05", "-1.5", "16.0", "99.99", "1.18446744073709551615",
	} {
		changed := maps.Clone(fields)
		changed["c"] = cursor
		add("cursor "+cursor, changed)
	}
	return forged
}

func encodeJSON(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // made of texts and numbers
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// TestRevisionsOfDeletedJobs: nobody reads or restores the revisions of a job that was deleted, also if another job has
// its name by then, however soon.
func TestRevisionsOfDeletedJobs(t *testing.T) {
	n := startWith(t, redistest.Start(t).URL(), "n", func(c *node.Config) { c.JobRevisions = 10 })
	c := jobs(t, n)
	const name = "namespaces/default/jobs/again"
	for round := range 40 {
		create(t, c, "again", intervalJob(time.Hour, fmt.Sprint("handler-", round)))
		all, err := c.ListJobRevisions(t.Context(), &fermatav1.ListJobRevisionsRequest{Parent: name})
		if err != nil || len(all.GetRevisions()) != 1 {
			t.Fatalf("a new job has revisions %v, %v", all, err)
		}
		for _, queue := range []string{"one", "two"} {
			_, err = c.UpdateJob(t.Context(), &fermatav1.UpdateJobRequest{
				Job:        &fermatav1.Job{Name: name, Queue: queue},
				UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"queue"}},
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		_, err = c.DeleteJob(t.Context(), &fermatav1.DeleteJobRequest{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		if round > 0 {
			continue
		}
		_, listErr := c.ListJobRevisions(t.Context(), &fermatav1.ListJobRevisionsRequest{Parent: name})
		_, getErr := c.GetJobRevision(t.Context(), &fermatav1.GetJobRevisionRequest{Name: name + "/revisions/1"})
		restore := &fermatav1.RestoreJobRevisionRequest{Name: name + "/revisions/1"}
		_, restoreErr := c.RestoreJobRevision(t.Context(), restore)
		for call, err := range map[string]error{"list": listErr, "get": getErr, "restore": restoreErr} {
			if status.Code(err) != codes.NotFound {
				t.Errorf("%s of revisions of a deleted job: %v", call, err)
			}
		}
	}
}
