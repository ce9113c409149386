package rpc

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fermata-io/fermata/internal/core/authz"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func whoAmI(t *testing.T, b *gated, token string) *fermatav1.WhoAmIResponse {
	t.Helper()
	ctx := t.Context()
	if token != "" {
		ctx = as(ctx, token)
	}
	w, err := fermatav1.NewAccessServiceClient(b.dial(t)).WhoAmI(ctx, &fermatav1.WhoAmIRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestWhoAmI(t *testing.T) {
	end := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	worker := allow(authz.Worker, "team-a", "ann", "bob")
	worker.Queues = []string{"mail", "bulk-*"}
	worker.Limits = authz.Limits{Rate: 5, Burst: 7, MaxOpenCalls: 30, Connections: 9}
	authority := newAuthority(t, authz.Limits{}, worker, allow(authz.Viewer, "*", "bob"), allow(authz.Editor, "team-b*", "ann"))
	authority.expires = end
	b := serveGated(t, Options{Authority: authority, Node: "n1", JobLimit: func(namespace string) int { return len(namespace) },
		JobBytesLimit: func(namespace string) int { return 100 * len(namespace) }})

	want := &fermatav1.WhoAmIResponse{
		Identity: "token:ann", Authentication: fermatav1.WhoAmIResponse_AUTHENTICATION_TOKEN, ExpireTime: timestamppb.New(end), Node: "n1",
		Grants: []*fermatav1.RoleGrant{
			{Role: "worker", Namespaces: []string{"team-a"}, Queues: []string{"mail", "bulk-*"}},
			{Role: "editor", Namespaces: []string{"team-b*"}},
		},
		Limits:     &fermatav1.CallLimits{Rate: 5, Burst: 7, Calls: 30, Connections: 9},
		Namespaces: []*fermatav1.NamespaceLimits{{Namespace: "team-a", Jobs: 6, JobBytes: 600}},
	}
	if got := whoAmI(t, b, "ann"); !proto.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
	// Without a role there is an answer, too: that is what one wants to know.
	want = &fermatav1.WhoAmIResponse{
		Identity: "token:stranger", Authentication: fermatav1.WhoAmIResponse_AUTHENTICATION_TOKEN, ExpireTime: timestamppb.New(end), Node: "n1",
		Limits: &fermatav1.CallLimits{},
	}
	if got := whoAmI(t, b, "stranger"); !proto.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

// TestWhoAmIWithoutAuthentication: the same whether the node has limits of hosts or none.
func TestWhoAmIWithoutAuthentication(t *testing.T) {
	for _, limits := range []authz.Limits{{}, {Rate: 100, Burst: 100}} {
		want := &fermatav1.WhoAmIResponse{
			Identity: "anonymous", Authentication: fermatav1.WhoAmIResponse_AUTHENTICATION_NONE, Node: "n1",
			Limits: &fermatav1.CallLimits{Rate: limits.Rate, Burst: int32(limits.Burst)},
		}
		if got := whoAmI(t, serveGated(t, Options{Limits: limits, Node: "n1"}), ""); !proto.Equal(got, want) {
			t.Errorf("got %v\nwant %v", got, want)
		}
	}
}
