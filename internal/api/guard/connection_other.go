//go:build !unix

package guard

import "net"

// readWhenReady returns w unchanged: this system cannot wait for input without a buffer.
func readWhenReady(w *countingConn, _ net.Conn) net.Conn { return w }
