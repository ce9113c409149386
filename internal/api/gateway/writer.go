package gateway

import (
	"net/http"
)

// countedWriter remembers the status of a response.
type countedWriter struct {
	http.ResponseWriter
	code int
}

func (w *countedWriter) WriteHeader(code int) {
	if w.code == 0 {
		w.code = code
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *countedWriter) Write(p []byte) (int, error) {
	if w.code == 0 {
		w.code = http.StatusOK
	}
	return w.ResponseWriter.Write(p)
}

// Flush is what the translation asks of a writer. Unwrap is for [http.ResponseController].
func (w *countedWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

func (w *countedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
