package telemetry

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// TestSlowRequestsForTheLevelAreFew: requests whose bodies do not arrive take few connections.
func TestSlowRequestsForTheLevelAreFew(t *testing.T) {
	began, end := make(chan struct{}), make(chan struct{})
	h := limitLevelRequests(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		began <- struct{}{}
		<-end
	}))
	ask := func() int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPut, "/loglevel", nil))
		return w.Code
	}
	var slow sync.WaitGroup
	for range levelRequestsAtOnce {
		slow.Go(func() { ask() })
		<-began
	}
	if code := ask(); code != http.StatusServiceUnavailable {
		t.Errorf("one more request: %d", code)
	}
	close(end)
	slow.Wait()
	go func() { <-began }()
	if code := ask(); code != http.StatusOK {
		t.Errorf("a request after the slow ones: %d", code)
	}
}
