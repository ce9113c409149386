package rpc

import (
	"bytes"
	"os"
	"regexp"
	"strconv"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/internal/core/authz"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestRawPaths speaks HTTP/2 by hand: a path that no client of gRPC sends must not
// reach a handler by another door than its row's.
func TestRawPaths(t *testing.T) {
	b := serveGated(t, Options{Authority: newAuthority(t, authz.Limits{}, allow(authz.Viewer, "team-a", "ann"))})
	for path, want := range map[string]codes.Code{
		"/fermata.v1.JobService/ListPresets":    codes.OK,
		"fermata.v1.JobService/ListPresets":     codes.Unimplemented,
		"fermata.v1.ClusterService/ListNodes":   codes.Unimplemented,
		"fermata.v1.WorkerService/Work":         codes.Unimplemented,
		"//fermata.v1.ClusterService/ListNodes": codes.Unimplemented,
		"/fermata.v1.ClusterService//ListNodes": codes.Unimplemented,
		"/fermata.v1.clusterservice/ListNodes":  codes.Unimplemented,
		"/fermata.v1.ClusterService/ListNodes/": codes.Unimplemented,
		"/fermata.v1.ClusterService/ListNodes":  codes.PermissionDenied,
		"/fermata.v1.PeerService/DescribeNode":  codes.Unimplemented,
		"*":                                     codes.Unimplemented,
	} {
		if got := rawCall(t, b, path); got != want {
			t.Errorf("%q: %s, want %s", path, got, want)
		}
	}
}

// rawCall makes one call with an empty message and tells the code of its status.
func rawCall(t *testing.T, b *gated, path string) codes.Code {
	t.Helper()
	conn, err := b.listener.DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(conn, conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, h := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", path}, {":authority", "x"},
		{"content-type", "application/grpc"}, {"te", "trailers"}, {"authorization", "Bearer ann"},
	} {
		if err := encoder.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}); err != nil {
			t.Fatal(err)
		}
	}
	body, err := proto.Marshal(&fermatav1.ListNodesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		framer.WriteSettings(),
		framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true}),
		framer.WriteData(1, true, append(make([]byte, 5), body...)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for {
		f, err := framer.ReadFrame()
		if err != nil {
			t.Fatalf("%q: %v", path, err)
		}
		headers, ok := f.(*http2.MetaHeadersFrame)
		if !ok {
			continue
		}
		for _, h := range headers.Fields {
			if h.Name == "grpc-status" {
				code, err := strconv.Atoi(h.Value)
				if err != nil {
					t.Fatal(err)
				}
				return codes.Code(code)
			}
		}
	}
}

// TestGRPCIsNotBelowItsFloor: versions before 1.82.1 can be made to skip rules by a
// path without a slash, or to spend themselves on streams that are reset at once
// (GHSA-p77j-4mvh-x3m3, GHSA-hrxh-6v49-42gf).
func TestGRPCIsNotBelowItsFloor(t *testing.T) {
	text, err := os.ReadFile("../../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`\n\s*google\.golang\.org/grpc v(\d+)\.(\d+)\.(\d+)\s`).FindStringSubmatch(string(text))
	if m == nil {
		t.Fatal("go.mod does not require gRPC")
	}
	version := 0
	for _, part := range m[1:] {
		n, err := strconv.Atoi(part)
		if err != nil {
			t.Fatal(err)
		}
		version = version*1000 + n
	}
	if floor := 1_082_001; version < floor {
		t.Errorf("gRPC is %v, want 1.82.1 or later", m[1:])
	}
}
