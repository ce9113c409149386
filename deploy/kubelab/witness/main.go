package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/auth/tlsfiles"
)

// Addresses of the two listeners: one that workers call, one for "witness tell".
const (
	evidenceAddr = ":8080"
	tellAddr     = "127.0.0.1:8081"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "witness:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 2 && args[0] == "tell":
		return tell(args[1])
	case len(args) > 0 && args[0] == "serve":
		return serve(args[1:])
	}
	return errors.New("usage: witness serve FLAGS, or witness tell PATH")
}

// tell sends a request to the witness of this pod and prints the answer. It fails if the witness refuses the request or
// reports findings.
func tell(path string) error {
	response, err := http.Post("http://"+tellAddr+path, "", nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(os.Stdout, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

func serve(args []string) error {
	flags := flag.NewFlagSet("witness serve", flag.ContinueOnError)
	address := flags.String("address", "", "host:port of the release's service")
	target := flags.String("target", "", "URL under which workers reach the evidence listener")
	lease := flags.Duration("lease-ttl", 30*time.Second, "what the nodes have")
	var files tlsfiles.Files
	flags.StringVar(&files.Authorities, "tls-ca", "", "PEM file with the authority")
	flags.StringVar(&files.Cert, "tls-cert", "", "PEM file with the certificate")
	flags.StringVar(&files.Key, "tls-key", "", "PEM file with the key")
	flags.StringVar(&files.ServerName, "tls-server-name", "", "name in the nodes' certificate")
	if err := flags.Parse(args); err != nil {
		return err
	}
	c, err := dial(*address, files)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()

	w := newWitness(c, *target, *lease)
	go w.pulse.follow(ctx)
	failed := make(chan error, 2)
	listen := func(addr string, h http.Handler) {
		server := &http.Server{Addr: addr, Handler: h, ReadHeaderTimeout: 10 * time.Second}
		go func() { failed <- server.ListenAndServe() }()
	}
	listen(evidenceAddr, w.evidence())
	listen(tellAddr, w.stagehand(ctx))
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

func dial(address string, files tlsfiles.Files) (*client.Client, error) {
	source, err := tlsfiles.Open(tlsfiles.Options{Files: files, Use: "clients"})
	if err != nil {
		return nil, err
	}
	return client.Dial([]string{address}, client.Options{TLS: source.ClientConfig()})
}
