package main

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"

	"github.com/fermata-io/fermata/internal/auth/tlsfiles"
)

// tlsFlags configure TLS to the nodes.
type tlsFlags struct {
	on    bool
	files tlsfiles.Files
}

func (f *tlsFlags) registerFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&f.on, "tls", false, "use TLS; implied by the other --tls flags. Files are read again when they "+
		"change")
	flags.StringVar(&f.files.Authorities, "tls-ca", "",
		"PEM file with the authority of the nodes' certificates (default: the system's)")
	flags.StringVar(&f.files.Cert, "tls-cert", "", "PEM file with this worker's certificate")
	flags.StringVar(&f.files.Key, "tls-key", "", "PEM file with this worker's key")
	flags.StringVar(&f.files.ServerName, "tls-server-name", "",
		"name in the nodes' certificates (default: the host of --scheduler, also at addresses that nodes name)")
}

// dialOptions are the options of connections to nodes: none for plain text.
func (f tlsFlags) dialOptions(logger *slog.Logger, registerer prometheus.Registerer) ([]grpc.DialOption, error) {
	if !f.on && f.files == (tlsfiles.Files{}) {
		return nil, nil
	}
	source, err := tlsfiles.Open(tlsfiles.Options{
		Files: f.files, Use: "nodes", Logger: logger, Registerer: registerer,
		Called: tlsfiles.Files{Cert: "--tls-cert", Key: "--tls-key", Authorities: "--tls-ca"},
	})
	if err != nil {
		return nil, err
	}
	return []grpc.DialOption{grpc.WithTransportCredentials(source.Client())}, nil
}
