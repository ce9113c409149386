package rpc

import (
	"bytes"
	"compress/gzip"
	"runtime"
	"testing"

	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip" // as the exporter of traces links it into the commands

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// bomb is a request of 14 MiB in as many KiB.
func bomb(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, err := z.Write(encoded(t, &fermatav1.CreateJobRequest{Parent: "namespaces/n", JobId: "a", Job: &fermatav1.Job{Handler: "h", Payload: make([]byte, 14<<20)}}))
	if err == nil {
		err = z.Close()
	}
	if err != nil || out.Len() > 16000 {
		t.Fatalf("%d bytes are no bomb (%v)", out.Len(), err)
	}
	return append(append([]byte{1}, prefix(out.Len())[1:]...), out.Bytes()...)
}

// TestCompressedRequestsAreRefused: nothing is decompressed, for strangers or others.
func TestCompressedRequestsAreRefused(t *testing.T) {
	jobs := &floodJobs{}
	f := serveFlooded(t, Options{}, jobs, nil)
	defer f.others(t)()
	w, body := f.rude(t, window), bomb(t)
	compressed := hpack.HeaderField{Name: "grpc-encoding", Value: "gzip"}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, token := range []string{"flood", "bad"} {
		for range 20 {
			id, err := w.open(token, fermatav1.JobService_CreateJob_FullMethodName, compressed)
			w.must(t, err, w.framer.WriteData(id, true, body))
			if code := w.answer(t, id); code != codes.Internal {
				t.Fatalf("%s: %s, want Internal", token, code)
			}
		}
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 64<<20 {
		t.Errorf("%d MiB were allocated for 40 requests", n>>20)
	}
	if n := jobs.calls.Load(); n != 0 {
		t.Errorf("%d calls reached the handler", n)
	}
	// Who has a compressor and does not use it is served.
	id, err := w.open("flood", fermatav1.JobService_CreateJob_FullMethodName, compressed)
	plain := createBody(t)
	w.must(t, err, w.framer.WriteData(id, true, append(prefix(len(plain)), plain...)))
	if code := w.answer(t, id); code != codes.OK {
		t.Errorf("a request that is not compressed: %s", code)
	}
}
