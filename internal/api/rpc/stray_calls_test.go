package rpc

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"

	"github.com/fermata-io/fermata/internal/api/guard"
	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// sendStray sends a call that gRPC answers itself, with an answer of many bytes.
func (w *rude) sendStray() error {
	w.last += 2
	w.block.Reset()
	_ = w.encoder.WriteField(hpack.HeaderField{Name: "content-type", Value: strings.Repeat("\xff", 4000)}) // to memory
	return w.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: w.last - 1, BlockFragment: w.block.Bytes(), EndHeaders: true, EndStream: true})
}

// TestStrayCallsAreBounded checks that calls that are not gRPC end a connection after some, and that fewer of them do
// no harm to other calls of the connection.
func TestStrayCallsAreBounded(t *testing.T) {
	counted := prometheus.NewRegistry()
	f := serveFlooded(t, Options{Limits: authz.Limits{MaxOpenCalls: 100}, Registerer: counted}, &floodJobs{}, nil)
	// A ping that this client does not answer closes a connection, too.
	wantRefused := func(n int) {
		t.Helper()
		if err := testutil.GatherAndCompare(counted, strings.NewReader(fmt.Sprintf(`
# HELP fermata_access_denied_total Calls that were refused, by method and reason.
# TYPE fermata_access_denied_total counter
fermata_access_denied_total{method="none",reason="refused"} %d
`, n)), "fermata_access_denied_total"); err != nil {
			t.Error(err)
		}
	}
	isClosed := func(w *rude) func() bool { return w.holds(func() bool { return w.closed }) }
	stray := func(w *rude, calls int) {
		for range calls {
			if w.sendStray() != nil {
				return // it is closed
			}
		}
	}
	stranger := f.rude(t, window)
	stray(stranger, guard.MaxRefusedCalls+10)
	redistest.Eventually(t, patience, "the connection of a stranger is closed", isClosed(stranger))
	wantRefused(1)

	caller := f.rude(t, window)
	call := func() codes.Code { return caller.call(t, "", fermatav1.ClusterService_ListNodes_FullMethodName, nil) }
	if code := call(); code != codes.OK {
		t.Fatal(code)
	}
	stray(caller, 100)
	if code := call(); code != codes.OK {
		t.Errorf("a call after 100 that are not gRPC: %s", code)
	}
	stray(caller, guard.MaxStreamsPerConnection)
	redistest.Eventually(t, patience, "many of them close every connection", isClosed(caller))
	wantRefused(2)
}
