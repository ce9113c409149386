package peer

import (
	"cmp"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// Protocol is the version of the messages that this build sends, MinProtocol the oldest version that it
// understands. An addition that others may ignore changes neither. Protocol grows when others must understand an
// addition, MinProtocol when something is no longer sent.
const (
	Protocol    = 1
	MinProtocol = 1
)

// handshake is what a node sends about its version and its keyspace.
type handshake struct {
	node, version         string
	protocol, minProtocol int
	keyspace              string // empty if the node does not send it
	address               string // for clients and workers; empty if the node does not send it
	process               string // empty if the node does not send it
	features              uint32 // of the process, one bit each
}

func (p *Peer) localHandshake() handshake {
	return handshake{node: p.o.Self, version: p.o.Version, protocol: Protocol, minProtocol: MinProtocol,
		keyspace: p.o.Keyspace(), address: p.o.ClientAddr, process: p.o.Process(), features: p.o.Features}
}

// Names of the header fields that the dialled node answers with.
const (
	versionHeader     = "fermata-version"
	protocolHeader    = "fermata-protocol"
	minProtocolHeader = "fermata-min-protocol"
	keyspaceHeader    = "fermata-keyspace"
	addressHeader     = "fermata-client-address"
	nodeHeader        = "fermata-node"
	processHeader     = "fermata-process"
	featuresHeader    = "fermata-features"
)

func (a handshake) helloRequest() *fermatav1.LinkRequest {
	return &fermatav1.LinkRequest{Message: &fermatav1.LinkRequest_Hello{Hello: &fermatav1.LinkHello{
		Node: a.node, Version: a.version, Protocol: int32(a.protocol), MinProtocol: int32(a.minProtocol),
		Keyspace: a.keyspace, PermitLists: true,
	}}}
}

func (a handshake) responseHeader() metadata.MD {
	return metadata.Pairs(versionHeader, a.version, protocolHeader, strconv.Itoa(a.protocol),
		minProtocolHeader, strconv.Itoa(a.minProtocol),
		keyspaceHeader, a.keyspace, addressHeader, a.address, nodeHeader, a.node,
		processHeader, a.process, featuresHeader, strconv.FormatUint(uint64(a.features), 10))
}

func handshakeFromHello(h *fermatav1.LinkHello) handshake {
	return handshake{
		node: h.GetNode(), version: job.Clip(h.GetVersion(), job.MaxID),
		protocol: max(1, int(h.GetProtocol())), minProtocol: max(1, int(h.GetMinProtocol())),
		keyspace: job.Clip(h.GetKeyspace(), job.MaxID),
	}
}

// handshakeFromHeader assumes the name of the dialled member if the node does not send its name, as the previous
// build does not.
func handshakeFromHeader(member string, md metadata.MD) handshake {
	number := func(name string) int {
		n, _ := strconv.Atoi(firstValue(md, name)) // nodes that do not send it use 1
		return max(1, n)
	}
	features, _ := strconv.ParseUint(firstValue(md, featuresHeader), 10, 32)
	return handshake{
		node: cmp.Or(firstValue(md, nodeHeader), member), version: job.Clip(firstValue(md, versionHeader), job.MaxID),
		protocol: number(protocolHeader), minProtocol: number(minProtocolHeader),
		keyspace: job.Clip(firstValue(md, keyspaceHeader), job.MaxID),
		address:  firstValue(md, addressHeader),
		process:  job.Clip(firstValue(md, processHeader), job.MaxID), features: uint32(features),
	}
}

func firstValue(md metadata.MD, name string) string {
	if values := md.Get(name); len(values) > 0 {
		return values[0]
	}
	return ""
}

// usesOtherKeyspace reports whether the other node uses another keyspace: its shards, locks and jobs are
// unrelated to this node's.
func (a handshake) usesOtherKeyspace(other handshake) bool {
	return a.keyspace != "" && other.keyspace != "" && a.keyspace != other.keyspace
}

// checkCompatible returns an error if the other node uses another keyspace, or if one of the two does not
// understand the other's protocol. The error has the id of neither keyspace: the log has both.
func (a handshake) checkCompatible(other handshake) error {
	if a.usesOtherKeyspace(other) {
		return status.Errorf(codes.FailedPrecondition,
			"node %s uses another keyspace than node %s: give both the same Redis, database and --keyspace, "+
				"or another --cluster",
			job.Clip(other.node, job.MaxID), a.node)
	}
	if a.protocol >= other.minProtocol && other.protocol >= a.minProtocol {
		return nil
	}
	return status.Errorf(codes.FailedPrecondition,
		"node %s (version %s) speaks peer protocol %d and understands %d and later, node %s (version %s) speaks %d "+
			"and understands %d and later: "+
			"upgrade over a version that both understand",
		a.node, cmp.Or(a.version, "unknown"), a.protocol, a.minProtocol,
		job.Clip(other.node, job.MaxID), cmp.Or(other.version, "unknown"), other.protocol, other.minProtocol)
}
