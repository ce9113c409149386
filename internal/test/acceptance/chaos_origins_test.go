package acceptance

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// origins finds which process a connection comes from: all of them dial from the
// same address, so the kernel is asked who owns the port.
type origins struct {
	mu   sync.Mutex
	pids map[string]int    // by process name
	ips  map[string]string // node by the address it listens on
}

func newOrigins() *origins {
	return &origins{pids: map[string]int{}, ips: map[string]string{}}
}

func (o *origins) noteProcess(name string, pid int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pids[name] = pid
}

func (o *origins) noteListener(node, ip string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ips[ip] = node
}

// byAddress names the sender of a packet: nodes send from where they listen.
func (o *origins) byAddress(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return ""
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ips[host]
}

// byProcess names the process at the other end of a stream to a proxy; "" is the
// test itself, or a process that has gone.
func (o *origins) byProcess(proxy string) func(net.Addr) string {
	to, err := net.ResolveTCPAddr("tcp", proxy)
	return func(a net.Addr) string {
		from, ok := a.(*net.TCPAddr)
		if err != nil || !ok {
			return ""
		}
		// The kernel's table is read in parts, and may miss a line that moves meanwhile.
		for range 5 {
			if name := o.ownerOfSocket(inodeOf(from, to)); name != "" {
				return name
			}
		}
		return ""
	}
}

// ownerOfSocket is the process that has a socket.
func (o *origins) ownerOfSocket(inode string) string {
	if inode == "" {
		return ""
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for name, pid := range o.pids {
		fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		if err != nil {
			continue
		}
		for _, fd := range fds {
			if link, err := os.Readlink(fd); err == nil && link == "socket:["+inode+"]" {
				return name
			}
		}
	}
	return ""
}

// inodeOf looks the socket up that has these addresses; its own alone would not do,
// since ports are shared by streams to different addresses.
func inodeOf(from, to *net.TCPAddr) string {
	table, err := os.Open("/proc/net/tcp")
	if err != nil {
		return ""
	}
	defer table.Close()
	lines := bufio.NewScanner(table)
	for lines.Scan() {
		if fields := strings.Fields(lines.Text()); len(fields) > 9 && fields[1] == asKernel(from) && fields[2] == asKernel(to) {
			return fields[9]
		}
	}
	return ""
}

// asKernel shows an address as the kernel does, in numbers of this machine's byte
// order.
func asKernel(a *net.TCPAddr) string {
	ip := a.IP.To4()
	if ip == nil {
		return ""
	}
	return fmt.Sprintf("%08X:%04X", binary.NativeEndian.Uint32(ip), a.Port)
}
