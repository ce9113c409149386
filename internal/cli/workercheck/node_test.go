package workercheck

import (
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"
)

// TestUnknownMethodsAreFaults: a worker with a wrong path of Work learns the right one.
func TestUnknownMethodsAreFaults(t *testing.T) {
	for method, isFault := range map[string]bool{
		"/fermata.v1.Worker/Work":          true,
		"/fermata.v1.WorkerService/DoWork": true,
		"/fermata.v1.JobService/GetJob":    false,
		"/grpc.health.v1.Health/Check":     false,
	} {
		trial, err := newTrial(t.Context(), Options{}, 1)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(trial.end)
		conn, err := grpc.NewClient(trial.newNode().addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if err := conn.Invoke(t.Context(), method, &emptypb.Empty{}, &emptypb.Empty{}); err == nil {
			t.Errorf("%s: no error", method)
		}
		faults := readLocked(trial, func() []Fault { return trial.faults })
		if isFault != (len(faults) == 1 && strings.Contains(faults[0].Text, method)) {
			t.Errorf("%s: faults %v", method, faults)
		}
	}
}
