//go:build !unix

package guard

import "net"

// readWhenReady returns w unchanged: this system cannot wait for input without a buffer.
func readWhenReady(w *countingConn) net.Conn { return w }
