package proc

import (
	"fmt"
	"net"
)

// FreePorts returns ports of 127.0.0.1 without a listener, for TCP and UDP.
func FreePorts(n int) ([]int, error) {
	var ports []int
	for len(ports) < n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // kept until all are found, so that they differ
		port := l.Addr().(*net.TCPAddr).Port
		if u, err := net.ListenPacket("udp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			_ = u.Close()
			ports = append(ports, port)
		}
	}
	return ports, nil
}
