package httphandler

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"
)

// gzipOverhead is by how many bytes a compressed answer may be longer than the part of it that is read.
const gzipOverhead = 64 << 10

var errLongGzip = errors.New("the answer in gzip is longer than its content")

// acceptGzip asks for an answer in gzip, as net/http does. It returns false if the payload says which encodings or which
// part of the answer it wants: then the answer is not decompressed.
func acceptGzip(request *http.Request) bool {
	h := request.Header
	if h.Get("Accept-Encoding") != "" || h.Get("Range") != "" || request.Method == http.MethodHead {
		return false
	}
	h.Set("Accept-Encoding", "gzip")
	return true
}

// gzipReader decompresses an answer, and fails when it has read too many compressed bytes. net/http has no such bound:
// gigabytes of empty blocks decompress to nothing, so that no limit of the content ends them.
type gzipReader struct {
	compressed io.Reader
	left       int // compressed bytes that may be read
	content    *gzip.Reader
}

func (g *gzipReader) Read(p []byte) (int, error) {
	if g.content == nil {
		content, err := gzip.NewReader(readerFunc(g.readCompressed))
		if err != nil {
			return 0, err
		}
		g.content = content
	}
	return g.content.Read(p)
}

func (g *gzipReader) readCompressed(p []byte) (int, error) {
	if g.left <= 0 {
		return 0, errLongGzip
	}
	n, err := g.compressed.Read(p[:min(len(p), g.left)])
	g.left -= n
	return n, err
}
