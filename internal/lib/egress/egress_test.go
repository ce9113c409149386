package egress

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestNoTranslatorLeadsToMetadata: a metadata address behind a prefix of any length is not
// reached, whichever network is allowed, unless that one address is.
func TestNoTranslatorLeadsToMetadata(t *testing.T) {
	for _, bits := range []int{32, 40, 48, 56, 64, 96} {
		for _, prefix := range []string{"64:ff9b::", "64:ff9b:1::", "64:ff9b:1:fffe::", "2001:db8:122:344::",
			"2a00:1450:4001:830::", "fd12:3456:789a::", "2002::"} {
			for _, target := range metadataAddrs {
				if !target.Is4() {
					continue
				}
				a := translate(netip.MustParseAddr(prefix), bits, target)
				for _, allow := range [][]netip.Prefix{nil, {netip.MustParsePrefix("::/0")},
					{netip.PrefixFrom(a, bits).Masked()}, {netip.PrefixFrom(a,
						127).Masked()}, {netip.PrefixFrom(target, 32)}} {
					g := Guard{Allow: allow, Ports: []uint16{80}}
					if g.Control(t.Context(), "tcp", netip.AddrPortFrom(a, 80).String(), nil) == nil {
						t.Errorf("%s, which is %s behind /%d, is reached with %v", a, target, bits, allow)
					}
				}
				g := Guard{Allow: []netip.Prefix{netip.PrefixFrom(a, 128)}}
				if err := g.Control(t.Context(), "tcp", netip.AddrPortFrom(a, 80).String(), nil); err != nil {
					t.Errorf("%s, which is allowed itself: %v", a, err)
				}
			}
		}
	}
	for address, want := range map[string]bool{
		"[2001:0:4136:e378:8000:63bf:5601:5601]:80": false, // Teredo
		"[fd00::5efe:169.254.169.254]:80":           false, // ISATAP
		"[2002:a9fe:a9fe::1]:80":                    false, // 6to4
		"[::ffff:0:169.254.169.254]:80":             false, // SIIT
		"[64:ff9b:1::808:808]:80":                   true, "[64:ff9b::8.8.8.8]:80": true, "[fd00::1]:80": true,
	} {
		err := Guard{Allow: []netip.Prefix{netip.MustParsePrefix("::/0")}}.Control(t.Context(), "tcp", address, nil)
		if (err == nil) != want {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// The networks that are not public come from a library; these addresses must be refused by any version of it.
func TestAddressesThatAreNotPublic(t *testing.T) {
	for _, address := range []string{
		"0.0.0.0", "0.1.2.3", "10.1.2.3", "100.64.0.1", "127.0.0.1", "127.9.9.9", "169.254.1.1", "172.16.0.1",
		"172.31.255.255", "192.0.0.8", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.19.255.255",
		"198.51.100.1", "203.0.113.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255", "168.63.129.16",
		"::", "::1", "::ffff:10.0.0.1", "::7f00:1", "64:ff9b::808:808", "64:ff9b:1::1", "100::1", "2001::1",
		"2001:db8::1", "2002:808:808::1", "3fff::1", "4000::1", "fc00::1", "fd00::1", "fe80::1", "fec0::1", "ff02::1",
	} {
		err := Guard{Ports: []uint16{443}}.Control(t.Context(), "tcp", netip.AddrPortFrom(netip.MustParseAddr(address),
			443).String(), nil)
		if !errors.Is(err, errRefused) {
			t.Errorf("%s: %v, want a refusal", address, err)
		}
	}
	for _, address := range []string{"1.1.1.1", "93.184.216.34", "172.32.0.1", "100.128.0.1", "223.255.255.254",
		"2606:4700::1111", "2a00:1450:4001:830::1"} {
		err := Guard{Ports: []uint16{443}}.Control(t.Context(), "tcp", netip.AddrPortFrom(netip.MustParseAddr(address),
			443).String(), nil)
		if err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// translate is RFC 6052.
func translate(prefix netip.Addr, bits int, target netip.Addr) netip.Addr {
	b, v4 := prefix.As16(), target.As4()
	at := bits / 8
	for _, v := range v4 {
		if at == 8 {
			b[8], at = 0, 9
		}
		b[at], at = v, at+1
	}
	return netip.AddrFrom16(b)
}

// TestPlainSaysNoAddress: the text of a failure has no address, and is the same for a
// name that there is not and one that leads inside.
func TestPlainSaysNoAddress(t *testing.T) {
	inside := &net.TCPAddr{IP: net.IPv4(10, 9, 8, 7), Port: 80}
	own := &net.TCPAddr{IP: net.IPv4(10, 1, 1, 1), Port: 4444}
	refused := Guard{}.Control(t.Context(), "tcp", "10.9.8.7:80", nil)
	port := Guard{Ports: []uint16{80}}.Control(t.Context(), "tcp", "93.184.216.34:8080", nil)
	unknown := &net.DNSError{Err: "no such host", Name: "x.internal", Server: "10.0.0.10:53", IsNotFound: true}
	for _, err := range []error{refused, port, unknown,
		&net.OpError{Op: "dial", Net: "tcp", Addr: inside, Err: refused}, &net.OpError{Op: "dial", Net: "tcp",
			Err: unknown}} {
		if got, want := DescribeWithoutAddresses(err).Error(), DescribeWithoutAddresses(unknown).Error(); got != want || !errors.Is(DescribeWithoutAddresses(err), err) {
			t.Errorf("%v is told as %q", err, got)
		}
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{&net.OpError{Op: "dial", Net: "tcp", Addr: inside, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)},
			"dial: connect: connection refused"},
		{fmt.Errorf("http2: %w", &net.OpError{Op: "read", Net: "tcp", Source: own, Addr: inside,
			Err: syscall.ECONNRESET}), "read: connection reset by peer"},
		{&net.OpError{Op: "proxy", Source: own, Err: &net.OpError{Op: "write", Addr: inside, Err: io.ErrClosedPipe}},
			"proxy: write: io: read/write on closed pipe"},
		{&net.DNSError{Err: "server misbehaving", Name: "x.internal", Server: "10.0.0.10:53", IsTemporary: true},
			"the lookup of the name failed"},
		{&net.DNSError{Err: "read udp 10.1.1.1:4444->10.0.0.10:53: i/o timeout", Name: "x", Server: "10.0.0.10:53",
			IsTimeout: true}, "the lookup of the name timed out"},
		{x509.HostnameError{Certificate: &x509.Certificate{DNSNames: []string{"billing.internal"}},
			Host: "x.example"}, "the certificate is not valid for the host of the URL"},
		{io.ErrUnexpectedEOF, "unexpected EOF"},
	} {
		got := DescribeWithoutAddresses(c.err)
		if got.Error() != c.want || !errors.Is(got, c.err) && !strings.Contains(c.want, "certificate") {
			t.Errorf("%v is told as %q, want %q", c.err, got, c.want)
		}
	}
	if DescribeWithoutAddresses(nil) != nil {
		t.Error("nothing is an error")
	}
}
