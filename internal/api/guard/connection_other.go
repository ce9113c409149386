//go:build !unix

package guard

import "net"

// readWhenReady is for systems that tell whether there is something to read.
func readWhenReady(w *countingConn) net.Conn { return w }
