package playground

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/fermata-io/fermata/internal/auth/bearer"
)

// Values of [Options.Redis] beside a path.
const (
	// RedisEmbedded is an imitation of Redis inside this process.
	RedisEmbedded = "embedded"
	// RedisAuto is a redis-server of its own if there is one on PATH, else embedded.
	RedisAuto = "auto"
)

// Options of [Run]. The zero value is what `scheduler dev` does without flags.
type Options struct {
	// GRPCAddr and HTTPAddr are where the node listens for clients and workers,
	// and for metrics. No other host may reach the first. Default 127.0.0.1:7070 and
	// 127.0.0.1:7072; port 0 takes a free one.
	GRPCAddr, HTTPAddr string
	// RESTAddr is where the API is served over HTTP. No other host may reach it. Default 127.0.0.1:7073.
	RESTAddr string
	// Redis is "embedded" (default), "auto", or the path of a redis-server.
	Redis string
	// Plain writes one line per event instead of a live view. It is implied when
	// Out is no terminal.
	Plain bool
	// For ends the run after this long. 0: when the context ends.
	For time.Duration
	// LogFile receives the logs of all parts; it is appended to and kept. Default:
	// a file in a temporary directory, removed with it.
	LogFile string
	// Out is where the view goes. Default standard output.
	Out io.Writer
	// Abort, when it is closed, ends the draining at once.
	Abort <-chan struct{}
	// DrainTimeout bounds the draining. Default 30 s.
	DrainTimeout time.Duration
}

// Check validates the addresses, by the names of their flags. [Run] requires that it returns nil.
func (o Options) Check() error {
	o = o.withDefaults()
	var faults []error
	addresses := []struct{ flag, addr string }{
		{"grpc-addr", o.GRPCAddr}, {"http-addr", o.HTTPAddr}, {"rest-addr", o.RESTAddr},
	}
	for _, a := range addresses {
		if _, _, err := net.SplitHostPort(a.addr); err != nil {
			faults = append(faults, fmt.Errorf("--%s %q: want host:port", a.flag, a.addr))
		}
	}
	if len(faults) > 0 {
		return errors.Join(faults...)
	}
	for _, a := range []struct{ flag, addr, example string }{
		{"grpc-addr", o.GRPCAddr, "127.0.0.1:7070"}, {"rest-addr", o.RESTAddr, "127.0.0.1:7073"},
	} {
		if !bearer.IsLocal(a.addr) {
			faults = append(faults, fmt.Errorf("--%s %s: other hosts can reach it, and the playground has "+
				"nothing to keep them out: want an address of this host alone, such as %s", a.flag, a.addr, a.example))
		}
	}
	return errors.Join(faults...)
}

func (o Options) withDefaults() Options {
	if o.GRPCAddr == "" {
		o.GRPCAddr = "127.0.0.1:7070"
	}
	if o.HTTPAddr == "" {
		o.HTTPAddr = "127.0.0.1:7072"
	}
	if o.RESTAddr == "" {
		o.RESTAddr = "127.0.0.1:7073"
	}
	if o.Redis == "" {
		o.Redis = RedisEmbedded
	}
	if o.Out == nil {
		o.Out = os.Stdout
	}
	if o.DrainTimeout <= 0 {
		o.DrainTimeout = 30 * time.Second
	}
	return o
}
