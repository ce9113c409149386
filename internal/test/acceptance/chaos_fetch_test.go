package acceptance

import (
	"io"
	"net/http"
	"testing"
)

// fetchText reads a page.
func fetchText(t testing.TB, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(callContext(t), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
