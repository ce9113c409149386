//go:build !unix

package rpc

import "net"

// calm is for systems that tell whether there is something to read.
func calm(w *watchedConn) net.Conn { return w }
