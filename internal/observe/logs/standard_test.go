package logs

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"testing"
)

// TestUnsolicitedAnswersAreNotLogged: the HTTP client quotes an answer that nobody asked for in the standard logger.
func TestUnsolicitedAnswersAreNotLogged(t *testing.T) {
	before := log.Writer()
	defer log.SetOutput(before)
	var written strings.Builder
	log.SetOutput(&written)
	DiscardStandard()
	sendUnsolicited(t)
	if written.Len() > 0 {
		t.Errorf("the standard logger wrote %q", written.String())
	}
}

// sendUnsolicited has a client receive two answers to one request, and returns when the client has closed the
// connection, which it does after it has logged the second one.
func sendUnsolicited(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	answered, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- answerTwice(l, answered) }()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Get("http://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, response.Body)
	response.Body.Close()
	close(answered)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// answerTwice answers one request, and once more when that answer was received. It returns when the client closes.
func answerTwice(l net.Listener, answered <-chan struct{}) error {
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	requests := bufio.NewReader(conn)
	_, err = http.ReadRequest(requests)
	if err != nil {
		return err
	}
	fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	<-answered
	fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nX: canary\r\n\r\n")
	_, _ = io.Copy(io.Discard, requests) // a reset is an end, too
	return nil
}
