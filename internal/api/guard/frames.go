package guard

import "encoding/binary"

// HTTP/2, RFC 9113.
const (
	clientPrefaceBytes = 24
	frameHeaderBytes   = 9
	headersFrame       = 1
)

// frameScanner finds the HEADERS frames in the bytes of a client, in pieces as they arrive.
type frameScanner struct {
	header  [frameHeaderBytes]byte
	have    int // bytes of header that have arrived
	payload int // bytes until the next header
}

func newFrameScanner() frameScanner { return frameScanner{payload: clientPrefaceBytes} }

// scan returns how many HEADERS frames begin in p. It stops after the header of number most; n is how many bytes it
// has looked at.
func (s *frameScanner) scan(p []byte, most int) (n, headers int) {
	for n < len(p) {
		if s.payload > 0 {
			step := min(s.payload, len(p)-n)
			s.payload, n = s.payload-step, n+step
			continue
		}
		step := copy(s.header[s.have:], p[n:])
		s.have, n = s.have+step, n+step
		if s.have < frameHeaderBytes {
			break
		}
		s.have = 0
		s.payload = int(binary.BigEndian.Uint32(s.header[:4]) >> 8)
		if s.header[3] != headersFrame {
			continue
		}
		headers++
		if headers == most {
			break
		}
	}
	return n, headers
}
