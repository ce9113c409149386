package node_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/fermata-io/fermata/internal/api/guard"
	"github.com/fermata-io/fermata/internal/node"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestNoMethodIsOpenWithoutCredential on any listener of nodes that have an access file and no TLS: neither for clients
// nor for nodes. The nodes themselves are linked.
func TestNoMethodIsOpenWithoutCredential(t *testing.T) {
	t.Parallel()
	x := newTenants(t, "")
	join := func(c *node.Config) { c.AccessFile = x.accessFile }
	other := startWith(t, x.redis.URL(), "m", join, x.node.GossipAddr())
	clusters := fermatav1.NewClusterServiceClient(x.conn)
	redistest.Eventually(t, redistest.Patience, "nodes describe themselves over their links", func(context.Context) error {
		list, err := clusters.ListNodes(x.as("root"), &fermatav1.ListNodesRequest{})
		if err != nil || len(list.GetNodes()) != 2 || list.GetNodes()[0].GetUnreachable() ||
			list.GetNodes()[1].GetUnreachable() {
			return fmt.Errorf("%v, %v", list, err)
		}
		return nil
	})
	for name, address := range map[string]string{
		"clients": x.node.GRPCAddr(), "nodes": x.node.PeerAddr(), "nodes of the other": other.PeerAddr(),
	} {
		for _, key := range []string{"", "0123456789abcdef"} {
			ctx := t.Context()
			if key != "" {
				ctx = metadata.AppendToOutgoingContext(ctx, guard.PeerProofHeader, key, guard.PeerNonceHeader, "nonce")
			}
			served := 0
			for _, method := range allMethods() {
				switch code := codeOf(ctx, t, address, method); code {
				case codes.Unimplemented:
				case codes.Unauthenticated:
					served++
				default:
					t.Errorf("%s without a credential at the listener of %s: %v", method, name, code)
				}
			}
			if served < 3 {
				t.Errorf("the listener of %s serves %d methods", name, served)
			}
		}
	}
}

// allMethods are the full names of all methods of Fermata.
func allMethods() (names []string) {
	protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		if !strings.HasPrefix(string(f.Package()), "fermata.") {
			return true
		}
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			for k := range s.Methods().Len() {
				names = append(names, "/"+string(s.FullName())+"/"+string(s.Methods().Get(k).Name()))
			}
		}
		return true
	})
	return names
}

// codeOf is the code of a call with an empty request, on a connection of its own. A stream is read until its first
// answer.
func codeOf(ctx context.Context, t *testing.T, address, method string) codes.Code {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err == nil {
		_, _ = s.SendMsg(&emptypb.Empty{}), s.CloseSend() // the answer has their error
		err = s.RecvMsg(&emptypb.Empty{})
	}
	return status.Code(err)
}
