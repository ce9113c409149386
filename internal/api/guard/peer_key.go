package guard

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Headers of calls between nodes without TLS.
const (
	// PeerProofHeader has the proof of the caller, and PeerNonceHeader what the other node has to prove its own with.
	PeerProofHeader = "fermata-peer-proof"
	PeerNonceHeader = "fermata-peer-nonce"
	// peerAnswerHeader is the header of the response with the proof of the other node.
	peerAnswerHeader = "fermata-peer-answer"
)

// maxNonce is more bytes than a nonce has.
const maxNonce = 64

// PeerKey is a secret of the keyspace. Nodes that have no certificates prove by it to each other that they read the
// keyspace. They learn each other's addresses by gossip, which others may write. So the key itself is never sent: the
// proof of a caller is worth nothing but at the node that it is meant for, and the proof of the other node is new for
// each call.
type PeerKey []byte

// Callee is the node that a call is meant for.
type Callee struct {
	Name, Process string
	Address       string // that is dialled, and that the node itself publishes
}

// CallerProof returns what a caller sends to a node.
func (k PeerKey) CallerProof(c Callee) string {
	return k.sign(fmt.Sprintf("caller %q %q %q", c.Name, c.Process, c.Address))
}

func (k PeerKey) calleeProof(name, nonce string) string {
	return k.sign(fmt.Sprintf("callee %q %q", name, nonce))
}

func (k PeerKey) sign(text string) string {
	h := hmac.New(sha256.New, k)
	h.Write([]byte(text))
	return hex.EncodeToString(h.Sum(nil))
}

// DialOptions are options of connections to a node, which may be another process with each call. A call fails with
// UNAUTHENTICATED if the node does not prove that it has the key.
func (k PeerKey) DialOptions(callee func() Callee) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, q, answer any, conn *grpc.ClientConn,
			invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
			call := k.newCall(callee())
			var header metadata.MD
			err := invoke(call.withHeaders(ctx), method, q, answer, conn, append(options, grpc.Header(&header))...)
			if err == nil && !call.isProven(header) {
				return errUnprovenPeer
			}
			return err
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, d *grpc.StreamDesc, conn *grpc.ClientConn, method string,
			open grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
			call := k.newCall(callee())
			stream, err := open(call.withHeaders(ctx), d, conn, method, options...)
			return &provenStream{ClientStream: stream, call: call}, err
		}),
	}
}

var errUnprovenPeer = status.Error(codes.Unauthenticated,
	"what listens at this address has not proven that it is a node of this cluster")

// peerCall is one call to a node.
type peerCall struct {
	key    PeerKey
	callee Callee
	nonce  string
}

func (k PeerKey) newCall(c Callee) peerCall { return peerCall{key: k, callee: c, nonce: rand.Text()} }

func (c peerCall) withHeaders(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, PeerProofHeader, c.key.CallerProof(c.callee), PeerNonceHeader, c.nonce)
}

func (c peerCall) isProven(header metadata.MD) bool {
	sent := header.Get(peerAnswerHeader)
	return len(sent) == 1 && hmac.Equal([]byte(sent[0]), []byte(c.key.calleeProof(c.callee.Name, c.nonce)))
}

// provenStream is a stream whose header and messages count once the other node has proven itself. It is for one goroutine
// until a header or a message was received.
type provenStream struct {
	grpc.ClientStream
	call   peerCall
	proven bool
}

// Header returns no header of a node that has not proven itself. RecvMsg then has the reason.
func (s *provenStream) Header() (metadata.MD, error) {
	header, err := s.ClientStream.Header()
	if err != nil {
		return nil, err
	}
	if !s.proven {
		s.proven = s.call.isProven(header)
	}
	if !s.proven {
		return nil, nil
	}
	return header, nil
}

// RecvMsg returns the status of a refused stream.
func (s *provenStream) RecvMsg(m any) error {
	if s.proven {
		return s.ClientStream.RecvMsg(m)
	}
	_, err := s.Header()
	if err == nil {
		err = s.ClientStream.RecvMsg(m)
	}
	if err == nil && !s.proven {
		return errUnprovenPeer
	}
	return err
}

// PeerKeyCheck is for the server that other nodes connect to without TLS, of the node self: callers have to prove that
// they have the key.
func PeerKeyCheck(key PeerKey, self Callee, o Options) (PeerCheck, error) {
	if len(key) == 0 || o.Logger == nil {
		return nil, errors.New("guard: PeerKeyCheck needs a key and a Logger")
	}
	g, err := New(o)
	if err != nil {
		return nil, err
	}
	proof := []byte(key.CallerProof(self))
	return func(ctx context.Context, method string) error {
		c := &Caller{gate: g, method: method}
		sent, nonce := metadata.ValueFromIncomingContext(ctx, PeerProofHeader), nonceOf(ctx)
		switch {
		case len(sent) == 0:
			return c.refuseCredential(ctx, "missing", errors.New("there is no "+PeerProofHeader))
		case len(sent) > 1 || !hmac.Equal([]byte(sent[0]), proof) || nonce == "":
			return c.refuseCredential(ctx, "invalid", errors.New("the "+PeerProofHeader+" is not that of a node of this "+
				"cluster for this process"))
		}
		return nil
	}, nil
}

// ServerOptions have a server answer the calls that it accepts with its own proof.
func (k PeerKey) ServerOptions(self string) []grpc.ServerOption {
	answer := func(ctx context.Context) metadata.MD {
		return metadata.Pairs(peerAnswerHeader, k.calleeProof(self, nonceOf(ctx)))
	}
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, q any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			err := grpc.SetHeader(ctx, answer(ctx))
			if err != nil {
				return nil, err
			}
			return next(ctx, q)
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo,
			next grpc.StreamHandler) error {
			err := stream.SetHeader(answer(stream.Context()))
			if err != nil {
				return err
			}
			return next(srv, stream)
		}),
	}
}

// nonceOf returns the nonce of a call; empty: it has none, or a longer one than any node sends.
func nonceOf(ctx context.Context) string {
	sent := metadata.ValueFromIncomingContext(ctx, PeerNonceHeader)
	if len(sent) != 1 || len(sent[0]) > maxNonce {
		return ""
	}
	return sent[0]
}
