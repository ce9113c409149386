package peer

import (
	"cmp"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/internal/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// Protocol is what this version says on links, MinProtocol the oldest that it still
// understands. What is added so that others may ignore it changes neither. Protocol
// grows with what others must understand, MinProtocol with what is no longer said.
const (
	Protocol    = 1
	MinProtocol = 1
)

// about is what a node says of its version and its keyspace.
type about struct {
	node, version         string
	protocol, minProtocol int
	keyspace              string // empty from a node that does not say
	address               string // for clients and workers; empty from a node that does not say
}

func (p *Peer) self() about {
	return about{node: p.o.Self, version: p.o.Version, protocol: Protocol, minProtocol: MinProtocol, keyspace: p.o.Keyspace(), address: p.o.ClientAddr}
}

// Names of what the node that was dialled says of itself in its header.
const (
	versionHeader     = "fermata-version"
	protocolHeader    = "fermata-protocol"
	minProtocolHeader = "fermata-min-protocol"
	keyspaceHeader    = "fermata-keyspace"
	addressHeader     = "fermata-client-address"
	nodeHeader        = "fermata-node"
)

func (a about) hello() *fermatav1.LinkRequest {
	return &fermatav1.LinkRequest{Message: &fermatav1.LinkRequest_Hello{Hello: &fermatav1.LinkHello{
		Node: a.node, Version: a.version, Protocol: int32(a.protocol), MinProtocol: int32(a.minProtocol), Keyspace: a.keyspace,
	}}}
}

func (a about) header() metadata.MD {
	return metadata.Pairs(versionHeader, a.version, protocolHeader, strconv.Itoa(a.protocol), minProtocolHeader, strconv.Itoa(a.minProtocol),
		keyspaceHeader, a.keyspace, addressHeader, a.address, nodeHeader, a.node)
}

func aboutFromPB(h *fermatav1.LinkHello) about {
	return about{
		node: h.GetNode(), version: job.Clip(h.GetVersion(), job.MaxID),
		protocol: max(1, int(h.GetProtocol())), minProtocol: max(1, int(h.GetMinProtocol())),
		keyspace: job.Clip(h.GetKeyspace(), job.MaxID),
	}
}

// aboutFromHeader takes the node that was dialled for the member that it was dialled as if it does
// not say who it is, as the previous build does not.
func aboutFromHeader(member string, md metadata.MD) about {
	number := func(name string) int {
		n, _ := strconv.Atoi(first(md, name)) // nodes that do not say speak 1
		return max(1, n)
	}
	return about{
		node: cmp.Or(first(md, nodeHeader), member), version: job.Clip(first(md, versionHeader), job.MaxID),
		protocol: number(protocolHeader), minProtocol: number(minProtocolHeader),
		keyspace: job.Clip(first(md, keyspaceHeader), job.MaxID),
		address:  first(md, addressHeader),
	}
}

func first(md metadata.MD, name string) string {
	if values := md.Get(name); len(values) > 0 {
		return values[0]
	}
	return ""
}

// foreign reports whether the other node uses another keyspace: its shards, locks and jobs
// have nothing to do with ours.
func (a about) foreign(other about) bool {
	return a.keyspace != "" && other.keyspace != "" && a.keyspace != other.keyspace
}

// fits refuses a node that uses another keyspace, and one that this one does not understand, or the other way round.
func (a about) fits(other about) error {
	if a.foreign(other) {
		return status.Errorf(codes.FailedPrecondition,
			"node %s uses keyspace %s, node %s another one, %s: give both the same Redis, database and --keyspace, or another --cluster",
			a.node, a.keyspace, job.Clip(other.node, job.MaxID), other.keyspace)
	}
	if a.protocol >= other.minProtocol && other.protocol >= a.minProtocol {
		return nil
	}
	return status.Errorf(codes.FailedPrecondition,
		"node %s (version %s) speaks peer protocol %d and understands %d and later, node %s (version %s) speaks %d and understands %d and later: "+
			"upgrade over a version that both understand",
		a.node, cmp.Or(a.version, "unknown"), a.protocol, a.minProtocol, job.Clip(other.node, job.MaxID), cmp.Or(other.version, "unknown"), other.protocol, other.minProtocol)
}
