package guard

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// TestScanFindsCallsInAnyPieces scans frames of all types in pieces of any size and checks that each HEADERS frame is
// found once, and that no scan exceeds its bound.
func TestScanFindsCallsInAnyPieces(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 500 {
		stream, want := make([]byte, clientPrefaceBytes), 0
		for range 200 {
			length, kind := random.IntN(40), byte(random.IntN(12))
			if random.IntN(50) == 0 {
				length = random.IntN(1 << 14)
			}
			header := binary.BigEndian.AppendUint32(nil, uint32(length)<<8|uint32(kind))
			stream = append(stream, append(header, 1, 0, 0, 0, 1)...)
			for range length { // content that looks like headers
				stream = append(stream, headersFrame)
			}
			if kind == headersFrame {
				want++
			}
		}
		s, found, most := newFrameScanner(), 0, 1+random.IntN(10)
		for rest := stream; len(rest) > 0; {
			piece := rest[:min(len(rest), 1+random.IntN(3000))]
			n, headers := s.scan(piece, most)
			if n == 0 || n < len(piece) && headers < most || headers > most {
				t.Fatalf("round %d: a scan of %d bytes stops after %d with %d calls of at most %d",
					round, len(piece), n, headers, most)
			}
			found, rest = found+headers, rest[n:]
		}
		if found != want {
			t.Fatalf("round %d: %d calls found, want %d", round, found, want)
		}
	}
}
