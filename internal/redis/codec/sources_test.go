package codec

import (
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	storagev1 "github.com/fermata-io/fermata/proto/fermata/storage/v1"
)

// TestSourcesOfAnotherRevisionDoNotCount: a node that does not know them carries them through an
// edit, after which they say nothing of the values.
func TestSourcesOfAnotherRevisionDoNotCount(t *testing.T) {
	d := job.Definition{Key: job.Key{Namespace: "ns", ID: "job"}, Queue: "q", Handler: "h", Revision: 3}
	d.SetPolicies(backoff.Resolve(backoff.DefaultPolicies(false), backoff.Layer{
		Source: backoff.Source{Kind: backoff.FromQueue, Name: "q"}, Set: 1 << backoff.RetryMaxAttempts, Values: backoff.Policies{Retry: backoff.Retry{MaxAttempts: 9}},
	}))
	for _, f := range allEncodings {
		b, err := f.EncodeDefinition(&d)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeDefinition("ns/job", string(b))
		if err != nil || !reflect.DeepEqual(got.Sources, d.Sources) || got.PolicySources()[backoff.RetryMaxAttempts] != (backoff.Source{Kind: backoff.FromQueue, Name: "q"}) {
			t.Fatalf("encoding %d: %+v, %v", f, got, err)
		}
		var m storagev1.Definition
		if err := proto.Unmarshal(b, &m); err != nil {
			t.Fatal(err)
		}
		m.Revision = 4 // as the other node has stored it
		if b, err = proto.Marshal(&m); err != nil {
			t.Fatal(err)
		}
		got, err = DecodeDefinition("ns/job", string(b))
		if err != nil || got.Sources != nil || got.Retry.MaxAttempts != 9 {
			t.Errorf("encoding %d: after an edit %+v, %v", f, got, err)
		}
	}
}

// TestPlainJobsStoreNoSources: most jobs take not a byte more.
func TestPlainJobsStoreNoSources(t *testing.T) {
	d := job.WithDefaults(job.Definition{Key: job.Key{Namespace: "ns", ID: "job"}, Handler: "h", Revision: 1})
	d.SetPolicies(backoff.Resolve(backoff.DefaultPolicies(false)))
	if d.Sources != nil || encodeSources(&d) != nil {
		t.Errorf("sources %v", d.Sources)
	}
}
