package guard

import (
	"errors"
	"io"

	"google.golang.org/grpc"
)

// refuseCompressed has a server take requests as they are, and no compressed ones. gRPC
// makes a whole request of what it has read before anything of ours is asked who sent
// it, so that 16 KiB from a stranger would cost 16 MiB, on each of 250 streams, and
// count as 16 KiB (see unauthenticated.go). Whether it does is otherwise left to chance: one
// package that links a compressor, as the exporter of traces does, has every server of
// the process use it.
//
//lint:ignore SA1019 only this one is for a server and not for the whole process
var refuseCompressed = grpc.RPCDecompressor(refusingDecompressor{})

var errCompressed = errors.New("compressed requests are not taken; send them as they are")

// refusingDecompressor stands in the place of the decompressor of this name.
type refusingDecompressor struct{}

func (refusingDecompressor) Type() string                 { return "gzip" }
func (refusingDecompressor) Do(io.Reader) ([]byte, error) { return nil, errCompressed }
